//! What of a submitter's environment a request takes along: only what is on a list, and what was named.

use std::ffi::OsString;

/// These always.
const NAMES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR"];
/// And all that begin so.
const BEGINNINGS: [&str; 2] = ["LC_", "XDG_"];

/// Whether a variable goes along without having been named.
pub fn goes_along(name: &str) -> bool {
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Those of an environment that go along, in the order of their names. What is not UTF-8 stays behind.
pub fn of_submitter(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let texts = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut kept: Vec<(String, String)> = texts.filter(|(name, _)| goes_along(name)).collect();
    kept.sort();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn only_what_is_on_the_list_goes_along() {
        let pairs = ["XDG_RUNTIME_DIR", "PATH", "GITHUB_TOKEN", "LC_ALL", "LD_PRELOAD", "PATHS"];
        let mut pairs: Vec<(OsString, OsString)> =
            pairs.iter().map(|name| (OsString::from(name), OsString::from("x"))).collect();
        pairs.push((OsString::from("LANG"), OsString::from_vec(vec![0xff])));
        let kept: Vec<String> = of_submitter(pairs).into_iter().map(|(name, _)| name).collect();
        assert_eq!(kept, ["LC_ALL", "PATH", "XDG_RUNTIME_DIR"]);
    }
}
