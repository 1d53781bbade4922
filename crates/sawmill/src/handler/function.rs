//! Functions of several arguments, so that what is said about them is said once.

/// A function or closure whose arguments, as a tuple, are `Args`: any `Fn` of up to four.
#[diagnostic::on_unimplemented(
    message = "this is no function of the arguments that are expected here",
    note = "write out the types of all arguments; there may be four at most"
)]
pub trait Function<Args>: Send + Sync + 'static {
    /// What it returns.
    type Output;

    /// Calls it.
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
