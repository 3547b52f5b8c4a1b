//! Plans as pictures.

use lockkeeper::stages::picture::{dot, svg};

use crate::{EXAMPLE, WEATHER, plan};

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
