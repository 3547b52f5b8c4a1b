//! Plans as pictures.

use std::time::Duration;

use lockkeeper_stages::PlanView;
use lockkeeper_stages::picture::{Bar, Chart, Figure, Labels, Mark, dot, gantt, svg};

use crate::{EXAMPLE, WEATHER, plan};

const FIGURE: Figure<'_> =
    Figure { name: "plan", title: "Conflicts", labels: &Labels::ENGLISH, columns: &[], marks: &[] };

#[test]
fn a_picture_shows_groups_waves_and_conflicts_and_needs_nothing_else() {
    let text = svg(&[plan(WEATHER, "P3")]);
    for part in [
        "MUTEX",
        "wave 1",
        "wave 2",
        "app-bluetooth",
        "firmware/include/board.h",
        "rule board header",
        "prefers-color-scheme",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let outside = text.matches("http").count();
    assert_eq!(outside, 1, "only the name of the language itself");
    for foreign in ["<script", "<image", "href", "@import", "<foreignObject"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
}

#[test]
fn whatever_a_file_says_does_not_leave_its_place_in_the_picture() {
    let text = "parallel_groups:\n  '<b>':\n    - {group_id: 'a\"<script>alert(1)</script>&', agents: [x], conflict_paths: ['q\"<x>', '**']}\n\
        \x20   - {group_id: 'b\\', agents: [x], conflict_paths: ['**']}\n";
    let planned = [plan(text, "<b>")];
    let drawn = svg(&planned);
    assert!(!drawn.contains("<script") && drawn.contains("&lt;script&gt;"), "{drawn}");
    assert_balanced(&drawn);
    let graph = dot(&planned);
    assert!(graph.contains(r#"a\"<script>"#) && graph.contains(r#""b\\""#), "{graph}");
}

/// Every element that begins also ends, and no other mark is left over.
fn assert_balanced(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in text.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap();
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn a_graph_has_a_cluster_for_each_wave() {
    let plans: Vec<_> = ["P3", "P4", "P6"].iter().map(|phase| plan(EXAMPLE, phase)).collect();
    let text = dot(&plans);
    assert!(text.starts_with("digraph stages {") && text.ends_with("}\n"));
    assert_eq!(text.matches("label=\"wave ").count(), 5);
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    assert!(text.contains("dir=none, color=red"));
    assert!(text.contains("depends on it"));
    assert_balanced(&svg(&plans));
}

#[test]
fn a_drawing_for_a_page_has_no_colour_or_script_and_every_conflict_can_be_reached_with_the_keyboard() {
    let planned = PlanView::of(&plan(WEATHER, "P3"));
    let text = FIGURE.draw(&planned);
    for foreign in ["<style", " style=", "<script", "#fff", "href", "onload"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    assert_eq!(text.matches("tabindex=\"0\"").count(), planned.conflicts.len());
    for conflict in &planned.conflicts {
        let told = format!("{} – {}: {}", conflict.group1, conflict.group2, conflict.kind);
        assert!(text.contains(&told) && text.contains(&conflict.witness), "{told}: {text}");
    }
    assert_balanced(&text);
}

#[test]
fn a_drawing_says_how_groups_stand_and_what_its_columns_are() {
    let planned = PlanView::of(&plan(EXAMPLE, "P3"));
    let marks = ["begun", "<b>", "done"].map(|text| Mark { tone: "info", text });
    let text = Figure { marks: &marks, columns: &["first"], ..FIGURE }.draw(&planned);
    assert!(text.contains(">begun</text>") && text.contains("&lt;b&gt;"), "{text}");
    assert!(text.contains(">first</text>") && !text.contains("wave 1") && text.contains("wave 2"), "{text}");
    assert_balanced(&text);
}

#[test]
fn a_plan_is_drawn_from_what_is_kept_of_it() {
    for phase in ["P1", "P3", "P4", "P5", "P6"] {
        let shape = PlanView::of(&plan(EXAMPLE, phase));
        let kept = serde_json::to_string(&shape).unwrap();
        let again: PlanView = serde_json::from_str(&kept).unwrap();
        assert_eq!(again, shape);
        assert_eq!(FIGURE.draw(&again), FIGURE.draw(&shape), "{phase}");
    }
}

#[test]
fn a_plan_that_names_groups_which_are_not_there_is_drawn_without_them() {
    let mut shape = PlanView::of(&plan(EXAMPLE, "P4"));
    shape.groups.remove(0);
    let text = FIGURE.draw(&shape);
    assert!(text.contains("test-integration"), "{text}");
    assert_balanced(&text);
}

#[test]
fn bars_show_how_long_groups_took_and_how_they_stand() {
    let bar = |label, status, begins, ends| {
        let span = Duration::from_millis;
        Bar { label, status, word: status, begins: span(begins), waited: Duration::ZERO, ends: span(ends) }
    };
    let bars = [
        bar("api", "SUCCESS", 0, 1_500),
        bar("<b>", "FAILED", 0, 200),
        bar("web", "STARTED", 1_500, 3_000),
        bar("docs", "SKIPPED", 200, 200),
    ];
    let drawn = Chart::of(&bars).draw("Over time");
    for expected in
        ["Over time: api: 1.5s SUCCESS; ", "class=\"going\"", "class=\"bad\"", "&lt;b&gt;", ">SKIPPED<"]
    {
        assert!(drawn.contains(expected), "{expected} is not in {drawn}");
    }
    assert!(!drawn.contains("<style") && !drawn.contains("\"waiting\""));
    assert_balanced(&drawn);
    // A group waits for its leases first: that part of its bar looks different.
    let waited = Bar { waited: Duration::from_millis(500), ..bars[0] };
    let drawn = Chart::of(&[waited]).draw("Over time");
    assert!(drawn.contains("class=\"waiting\"") && drawn.contains("api: ⏳ 500ms; api: 1.5s"), "{drawn}");
    assert_balanced(&drawn);
    let picture = gantt("Over time", &bars);
    assert!(picture.contains("prefers-color-scheme") && picture.contains("class=\"going\""), "{picture}");
    assert_balanced(&picture);
}
