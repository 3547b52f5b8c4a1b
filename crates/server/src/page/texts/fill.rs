//! Fills values into a sentence. A sentence is one text with named places, because their order differs between languages.

/// Replaces `{name}` by its value. Braces in a value are left as they are.
pub(in crate::page) fn fill(sentence: &str, values: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), sentence);
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let place = after.split_once('}');
        let value = place.and_then(|(name, _)| values.iter().find(|(known, _)| *known == name));
        match (place, value) {
            (Some((_, after)), Some((_, value))) => {
                filled.push_str(value);
                rest = after;
            }
            _ => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled + rest
}

/// The texts of a sentence with the name of the place after each one, for templates that fill in markup. The last has no place.
pub(in crate::page) fn pieces(sentence: &'static str) -> Vec<(&'static str, &'static str)> {
    let parts = sentence.split('{').enumerate().flat_map(|(number, part)| {
        let (place, text) = part.split_once('}').filter(|_| number > 0).unwrap_or(("", part));
        [place, text].into_iter().skip(usize::from(number == 0))
    });
    let parts: Vec<&'static str> = parts.chain([""]).collect();
    parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once_and_in_any_order() {
        assert_eq!(fill("{owner} has {name}", &[("name", "{owner}"), ("owner", "a:1")]), "a:1 has {owner}");
        assert_eq!(fill("{open {x}", &[("x", "1")]), "{open 1");
        assert_eq!(fill("none", &[]), "none");
    }

    #[test]
    fn a_sentence_is_taken_apart_at_its_places() {
        assert_eq!(pieces("{owner} has {name} now"), [("", "owner"), (" has ", "name"), (" now", "")]);
        assert_eq!(pieces("none"), [("none", "")]);
    }
}
