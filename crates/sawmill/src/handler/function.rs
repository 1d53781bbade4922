//! One trait for functions of zero to four arguments, so that other traits need one implementation for all of
//! them.

/// A function or closure that takes `Args`, a tuple of its arguments: any `Fn` with up to four of them.
#[diagnostic::on_unimplemented(
    message = "this is no function of the arguments that are expected here",
    note = "write out the types of all arguments; there may be four at most"
)]
pub trait Function<Args>: Send + Sync + 'static {
    /// The function's return type.
    type Output;

    /// Calls the function.
    fn call(&self, arguments: Args) -> Self::Output;
}

macro_rules! function {
    ($($A:ident)*) => {
        impl<F, R, $($A),*> Function<($($A,)*)> for F
        where
            F: Fn($($A),*) -> R + Send + Sync + 'static,
        {
            type Output = R;

            #[allow(non_snake_case, reason = "each argument is named after its type")]
            fn call(&self, ($($A,)*): ($($A,)*)) -> R {
                self($($A),*)
            }
        }
    };
}

function!();
function!(A);
function!(A B);
function!(A B C);
function!(A B C D);
