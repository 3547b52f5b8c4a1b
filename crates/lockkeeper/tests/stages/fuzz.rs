//! The fuzz target for STAGES.yml; `scripts/fuzz stages` calls it with whatever libFuzzer finds, the tests with less.

use lockkeeper_stages::picture::{dot, svg};
use lockkeeper_stages::{Conditions, File, MAX_BYTES};

/// Reads, checks, plans and draws whatever this is, and makes sure of what has to hold for any bytes.
pub fn check(bytes: &[u8]) {
    let Ok(file) = File::parse("fuzz", bytes) else {
        assert!(bytes.len() > MAX_BYTES);
        return;
    };
    let lines = file.source.text().lines().count();
    for place in
        file.problems.iter().map(|problem| problem.place).chain(file.unknown.iter().map(|key| key.place))
    {
        assert!(place.line >= 1 && place.column >= 1 && place.width >= 1);
        assert!(place.line <= lines + 1, "{place:?}");
    }
    let conditions = Conditions { load: Some(1.0), ..Conditions::default() };
    let planned: Vec<_> = file
        .stages
        .phases
        .iter()
        .filter_map(|phase| file.plan(&phase.name.value, &[], &conditions).ok())
        .collect();
    // A group that waits for something that does not exist is refused, and nothing else is.
    let may_be_refused = file.problems.iter().any(|problem| problem.code == "UNKNOWN_GROUP");
    let all = planned.len() == file.stages.phases.len();
    assert!(file.errors().next().is_some() || all || may_be_refused);
    assert!(!svg(&planned).is_empty() && !dot(&planned).is_empty());
}
