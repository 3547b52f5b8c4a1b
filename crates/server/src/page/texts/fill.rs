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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once_and_in_any_order() {
        assert_eq!(fill("{owner} has {name}", &[("name", "{owner}"), ("owner", "a:1")]), "a:1 has {owner}");
        assert_eq!(fill("{open {x}", &[("x", "1")]), "{open 1");
        assert_eq!(fill("none", &[]), "none");
    }
}
