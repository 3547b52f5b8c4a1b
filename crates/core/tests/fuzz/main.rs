//! The fuzz targets on a fixed number of inputs. `scripts/fuzz` runs them on more.
#![expect(clippy::disallowed_macros, reason = "core prints nothing, a test with a seed does")]

mod patterns;

use lockkeeper_testing::Dice;

/// Texts to begin with: all that the grammar has, and what it refuses.
const SEEDS: &[&str] = &[
    "src/**/*.ts\nsrc/api/**\n**/*.test.ts\npackage.json\nsrc/api/x.test.ts",
    "{a,b/*,}c\n{src,docs}/**/x\na/{b,{c,d}}/e\n[!a-z]?*\nsrc/x",
    "./a//b/\n../x\n/abs\na[/]b\na/b",
    "[[:alpha:]]*\n[]]\n[z-a]\n[^\\]]\n]",
    "\\*\\?\\[\\{\n**a/b**\n***\na/**/**/b\na/b",
    ".\n**\n*\n?\n.hidden",
    "日本/*.ts\n*語\n[あ-ん]\n**/語\n日本/語",
    "{\n[\n\\\n\u{0}\na",
    "**\n**/*\na\n{a,}*\na\0",
];

/// How many inputs are made of each seed.
const INPUTS: u64 = 250;

/// Prints the input if the check panics.
struct FailedInput<'a> {
    seed: u64,
    input: &'a [u8],
}

impl Drop for FailedInput<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("LOCKKEEPER_SEED={} gave {:?}", self.seed, String::from_utf8_lossy(self.input));
        }
    }
}

/// Changes a text a few times: a byte, a piece of another seed, a piece left out or doubled.
fn changed(text: &str, dice: &mut Dice) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ab./*?[]{},!^-\\:\n\xc3\xa9\xff";
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=dice.index(6) {
        let place = dice.index(bytes.len() + 1);
        let end = place + dice.index((bytes.len() - place).min(8) + 1);
        match dice.index(4) {
            0 => bytes.insert(place, ALPHABET[dice.index(ALPHABET.len())]),
            1 => drop(bytes.drain(place..end)),
            2 => {
                let piece = bytes[place..end].to_vec();
                bytes.splice(place..place, piece);
            }
            _ => {
                let other = SEEDS[dice.index(SEEDS.len())].as_bytes();
                let start = dice.index(other.len());
                let piece = other[start..other.len().min(start + 6)].to_vec();
                bytes.splice(place..end, piece);
            }
        }
    }
    bytes
}

/// Requirement 206.
#[test]
fn patterns_of_any_bytes_keep_their_promises() {
    for seed in Dice::seeds(1..INPUTS + 1) {
        for text in SEEDS {
            let input = changed(text, &mut Dice::new(seed));
            let guard = FailedInput { seed, input: &input };
            patterns::check(guard.input);
        }
    }
}

/// Requirement 206.
#[test]
fn patterns_as_written_keep_their_promises() {
    for text in SEEDS {
        let guard = FailedInput { seed: 0, input: text.as_bytes() };
        patterns::check(guard.input);
    }
}
