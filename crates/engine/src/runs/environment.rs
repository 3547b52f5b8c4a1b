//! Allow list: which variables of the submitter's environment a command gets, and which of its worker's.

use std::ffi::OsString;

/// The names on the list.
const NAMES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR"];
/// Prefixes of further names.
const PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// The names on the list that describe a place: another machine has other values.
const OF_A_PLACE: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

/// Whether this variable on the list describes a place.
fn is_of_a_place(name: &str) -> bool {
    OF_A_PLACE.contains(&name) || name.starts_with("XDG_")
}

/// The variables on the list that do not describe a place: those that a request of several machines keeps.
pub fn for_any_machine(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    of_submitter(variables).into_iter().filter(|(name, _)| !is_of_a_place(name)).collect()
}

/// The variables on the list that describe a place: a command gets those of its worker.
pub(crate) fn of_this_machine(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(String, String)> {
    of_submitter(variables).into_iter().filter(|(name, _)| is_of_a_place(name)).collect()
}

/// Whether the command inherits this variable by default.
fn is_inherited(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The variables on the list, sorted by name. Variables that are not UTF-8 are left out.
pub fn of_submitter(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let texts = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut kept: Vec<(String, String)> = texts.filter(|(name, _)| is_inherited(name)).collect();
    kept.sort();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn only_variables_on_the_list_are_inherited() {
        let pairs = ["XDG_RUNTIME_DIR", "PATH", "GITHUB_TOKEN", "LC_ALL", "LD_PRELOAD", "PATHS"];
        let mut pairs: Vec<(OsString, OsString)> =
            pairs.iter().map(|name| (OsString::from(name), OsString::from("x"))).collect();
        let names = |kept: Vec<(String, String)>| kept.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(for_any_machine(pairs.clone())), ["LC_ALL"]);
        assert_eq!(names(of_this_machine(pairs.clone())), ["PATH", "XDG_RUNTIME_DIR"]);
        pairs.push((OsString::from("LANG"), OsString::from_vec(vec![0xff])));
        let kept: Vec<String> = of_submitter(pairs).into_iter().map(|(name, _)| name).collect();
        assert_eq!(kept, ["LC_ALL", "PATH", "XDG_RUNTIME_DIR"]);
    }
}
