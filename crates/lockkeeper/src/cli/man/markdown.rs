//! The page of all commands for the documentation, made from their definitions.

use clap::{Arg, ArgAction, Command};

use crate::cli::GROUPS;

/// The whole page, as Markdown.
pub(super) fn page(mut root: Command) -> String {
    // Without this, options that all commands have are known to the root only.
    root.build();
    let mut text = String::from(
        "# Commands\n\n\
         <!-- A test writes this page: LOCKKEEPER_WRITE_DOCS=1 cargo test -p lockkeeper --all-features --test documents -->\n\n\
         `lockkeeper COMMAND --help` and `lockkeeper man` say the same. `lockkeeper` alone shows what is held, who waits and what failed.\n\
         [Exit codes](exit-codes.md) and [settings](config.md) have pages of their own.\n\n\
         Every command has these options:\n\n",
    );
    text.push_str(&table(root.get_arguments()));
    for group in GROUPS {
        text.push_str(&format!("\n## {}\n", group.heading));
        for entry in group.verbs {
            let command = root.find_subcommand(entry.name).filter(|command| !command.is_hide_set());
            text.push_str(&command.map(|command| section(command, "", 3)).unwrap_or_default());
        }
    }
    text
}

/// A command and those below it.
fn section(command: &Command, above: &str, level: usize) -> String {
    let name = format!("{above}{}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let mut text = format!("\n{} {name}\n\n{about}.\n\n```text\n{usage}\n```\n", "#".repeat(level));
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    let rows = table(own);
    if !rows.is_empty() {
        text.push_str(&format!("\n{rows}"));
    }
    if let Some(more) = command.get_after_help() {
        text.push_str(&format!("\n```text\n{}\n```\n", more.to_string().trim_end()));
    }
    let below = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
    text + &below.map(|one| section(one, &format!("{name} "), level + 1)).collect::<String>()
}

/// Arguments and options with their meaning. Empty if there are none.
fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let shown =
        args.filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()));
    let rows: Vec<String> = shown.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("| argument | meaning |\n|---|---|\n{}", rows.concat())
}

fn row(arg: &Arg) -> String {
    let values = arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let several = if matches!(arg.get_action(), ArgAction::Append) { "…" } else { "" };
    let flags: Vec<String> = (arg.get_short().map(|short| format!("-{short}")).into_iter())
        .chain(arg.get_long().map(|long| format!("--{long}")))
        .collect();
    let name = match (flags.is_empty(), takes_value) {
        (true, _) => format!("{values}{several}"),
        (false, true) if arg.is_require_equals_set() => format!("{}[={values}]", flags.join(", ")),
        (false, true) => format!("{} {values}", flags.join(", ")),
        (false, false) => flags.join(", "),
    };
    let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let possible: Vec<String> =
        (arg.get_possible_values().iter().filter(|one| !one.is_hide_set() && takes_value))
            .map(|one| format!("`{}`", one.get_name()))
            .collect();
    if !possible.is_empty() {
        meaning.push_str(&format!(": {}", possible.join(", ")));
    }
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_value && !default.is_empty() {
        meaning.push_str(&format!(" [default: {}]", default.join(" ")));
    }
    // A bar would end the cell.
    format!("| `{}` | {} |\n", name.replace('|', "\\|"), meaning.replace('|', "\\|"))
}
