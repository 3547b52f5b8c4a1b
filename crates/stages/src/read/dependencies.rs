//! Section `dependencies`: which group or phase waits for which.

use lockkeeper_formats::yaml::{Node, Value};

use super::Diagnostics;
use super::fields::{Entry, Fields, items};
use crate::model::{Dependency, Endpoint, Stages};
use crate::place::Placed;
use crate::problem::Problem;

/// Reads a list of `{source, target}`, or a mapping from target to sources.
pub(super) fn read(entry: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    match &entry.node.value {
        Value::List(_) => {
            for (path, node) in items(entry) {
                one(node, &path, stages, diagnostics);
            }
        }
        Value::Map(_) | Value::Scalar { .. } => {
            let Some(mut fields) = Fields::of(entry.node, &entry.path, diagnostics) else { return };
            for named in fields.rest() {
                by_target(&named, stages, diagnostics);
            }
        }
    }
}

/// Reads `test-integration: [impl-backend, impl-frontend]`, or a mapping with `depends_on`.
fn by_target(named: &Entry<'_>, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let target = endpoint(&Placed::new(named.key.clone(), named.key_place));
    let sources = match &named.node.value {
        Value::List(_) | Value::Scalar { .. } => diagnostics.texts(named),
        Value::Map(_) => {
            let Some(mut fields) = Fields::of(named.node, &named.path, diagnostics) else { return };
            let entry = fields.take(&["depends_on", "needs", "after", "source", "sources"]);
            let sources = entry.map(|entry| diagnostics.texts(&entry)).unwrap_or_default();
            fields.finish(diagnostics);
            sources
        }
    };
    for source in sources {
        let (source, target) = (endpoint(&source), target.clone());
        stages.dependencies.push(Dependency { source, target, wait_for_completion: true });
    }
}

fn one(node: &Node, path: &str, stages: &mut Stages, diagnostics: &mut Diagnostics) {
    let Some(mut fields) = Fields::of(node, path, diagnostics) else { return };
    let source = fields.take(&["source", "sources", "from", "depends_on", "before"]);
    let target = fields.take(&["target", "targets", "to", "group", "group_id"]);
    let wait =
        fields.take(&["wait_for_completion", "wait", "blocking"]).and_then(|entry| diagnostics.truth(&entry));
    for key in ["reason", "description", "name", "type"] {
        fields.take(&[key]);
    }
    fields.finish(diagnostics);
    let (Some(source), Some(target)) = (source, target) else {
        let problem =
            Problem::error("BAD_DEPENDENCY", node.place, format!("{path} needs a source and a target"));
        diagnostics.problem(problem.with_hint("the target waits for the source"));
        return;
    };
    let (sources, targets) = (diagnostics.texts(&source), diagnostics.texts(&target));
    let wait_for_completion = wait.is_none_or(|wait| wait.value);
    for source in &sources {
        for target in &targets {
            let (source, target) = (endpoint(source), endpoint(target));
            stages.dependencies.push(Dependency { source, target, wait_for_completion });
        }
    }
}

/// Parses `impl-backend`, `P3`, or `P3.impl-backend`. The separator is `.`, `/` or `:`.
pub(super) fn endpoint(text: &Placed<String>) -> Endpoint {
    let (phase, name) = match text.value.split_once(['.', '/', ':']) {
        Some((phase, name)) if !phase.is_empty() && !name.is_empty() => (Some(phase.to_owned()), name),
        Some(_) | None => (None, text.value.as_str()),
    };
    Endpoint { phase, name: name.to_owned(), whole: text.value.clone(), place: text.place }
}
