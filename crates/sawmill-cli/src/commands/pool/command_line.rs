//! Splits a command line into words as a shell does, without expansion: `$HOME`, `*` and `;` are ordinary
//! characters.

/// Splits a line into words. Quotes hold a word together; a backslash escapes the next character, except
/// within `'…'`.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                quoted(&mut signs, sign, word)?;
            }
            '\\' => {
                let next =
                    signs.next().ok_or("it ends with a backslash, after which something is missing")?;
                word.get_or_insert_default().push(next);
            }
            sign if sign.is_whitespace() => words.extend(word.take()),
            sign => word.get_or_insert_default().push(sign),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Appends the text before the closing quote to the word.
fn quoted(signs: &mut std::str::Chars<'_>, quote: char, word: &mut String) -> Result<(), String> {
    let open = || format!("a {quote} is opened and not closed");
    loop {
        match signs.next().ok_or_else(open)? {
            sign if sign == quote => return Ok(()),
            '\\' if quote == '"' => {
                let next = signs.next().ok_or_else(open)?;
                if !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            sign => word.push(sign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_held_together_by_quotes() {
        for (line, words) in [
            ("convert in.png  out.jpg\n", &["convert", "in.png", "out.jpg"][..]),
            ("a 'b c' \"d e\" f\\ g", &["a", "b c", "d e", "f g"]),
            ("a'b'\"c\" '' \"\"", &["abc", "", ""]),
            (r#"sh -c "echo \"$HOME\" \\ \n" 'a\b'"#, &["sh", "-c", r#"echo "$HOME" \ \n"#, r"a\b"]),
            ("a;b | c * > d", &["a;b", "|", "c", "*", ">", "d"]),
            ("  ", &[]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line:?}");
        }
    }

    #[test]
    fn what_is_not_closed_is_said() {
        for (line, said) in [("a 'b", "'"), ("a \"b\\\"", "\""), ("a \\", "backslash")] {
            let error = split(line).unwrap_err();
            assert!(error.contains(said), "{line:?}: {error}");
        }
    }
}
