//! Graphviz output: waves as clusters, waits as arrows, exclusions as lines.

use std::fmt::Write;

use lockkeeper_core::plan::Cause;
use lockkeeper_core::printable::printable;

use crate::plan::PhasePlan;

/// Writes the plans of phases as one graph.
pub fn dot(plans: &[PhasePlan]) -> String {
    let mut text = String::from("digraph stages {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n");
    for (number, planned) in plans.iter().enumerate() {
        phase(&mut text, number, planned).expect("writing to a String cannot fail");
    }
    text.push_str("}\n");
    text
}

fn phase(text: &mut String, number: usize, planned: &PhasePlan) -> std::fmt::Result {
    let plan = &planned.plan;
    let node = |place: usize| format!("p{number}g{place}");
    writeln!(text, "  subgraph cluster_p{number} {{")?;
    writeln!(text, "    label={};", quoted(&format!("{} {}\n{}", planned.phase, plan.mode, plan.reason)))?;
    for (wave, members) in plan.waves.iter().enumerate() {
        writeln!(text, "    subgraph cluster_p{number}w{wave} {{")?;
        writeln!(text, "      label=\"wave {}\"; style=dashed;", wave + 1)?;
        for place in members {
            writeln!(text, "      {} [label={}];", node(*place), quoted(planned.id(*place)))?;
        }
        writeln!(text, "    }}")?;
    }
    if plan.waves.is_empty() {
        for place in 0..planned.groups.len() {
            writeln!(text, "    {} [label={}];", node(place), quoted(planned.id(place)))?;
        }
    }
    for (place, step) in plan.steps.iter().enumerate() {
        for bond in &step.after {
            let style = match bond.cause {
                Cause::Completion | Cause::Beginning => "solid",
                Cause::Conflict(_) | Cause::Folder(_) | Cause::Phase => "dashed",
            };
            let label = quoted(&planned.explain(bond));
            writeln!(text, "    {} -> {} [style={style}, label={label}];", node(bond.group), node(place))?;
        }
        for bond in step.excludes.iter().filter(|bond| bond.group > place) {
            let label = quoted(&planned.explain(bond));
            let ends = format!("{} -> {}", node(place), node(bond.group));
            writeln!(text, "    {ends} [dir=none, color=red, constraint=false, label={label}];")?;
        }
    }
    if plan.steps.is_empty() {
        for conflict in &planned.findings.conflicts {
            let ends = format!("{} -> {}", node(conflict.group1), node(conflict.group2));
            writeln!(text, "    {ends} [dir=none, color=red, label={}];", quoted(&conflict.witness))?;
        }
    }
    for found in planned.predicted.iter().filter(|found| found.ruling.is_none()) {
        let ends = format!("{} -> {}", node(found.group1), node(found.group2));
        let label = quoted(&format!("{} {:.0} %", found.path, found.probability * 100.0));
        writeln!(text, "    {ends} [dir=none, style=dashed, constraint=false, label={label}];")?;
    }
    writeln!(text, "  }}")
}

fn quoted(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    let escaped: Vec<_> = lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    format!("\"{}\"", escaped.join("\\n"))
}
