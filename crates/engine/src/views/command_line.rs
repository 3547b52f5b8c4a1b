//! A command as a line that a shell reads as the same words.

use lockkeeper_core::secret::shown_command;

/// The command without its secrets, as a line to copy into a shell.
pub fn shown_command_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    let quoted = shown_command(words).into_iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_quoted_as_a_shell_reads_it() {
        let line = |words: &[&str]| {
            shown_command_line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(line(&["make", "-j4", "A=b"]), "make -j4 A=b");
        assert_eq!(line(&["sh", "-c", "echo 'a b'; ls *", ""]), r"sh -c 'echo '\''a b'\''; ls *' ''");
    }
}
