//! Shell reader: what a bash command line writes, worked out by reading it as the shell would.
//!
//! The parser makes a syntax tree, the reader walks through it with a folder and variables, and tables say what each program does
//! with its arguments. Nothing is run, and nothing but [`Place::entry`] looks at the file system. What only the shell can know
//! becomes a reason in [`Writes::unknown`].

mod arguments;
mod compound;
mod expand;
mod outcome;
mod parameter;
mod parse;
mod paths;
mod programs;
mod reader;
mod redirects;
mod state;
mod syntax;
#[cfg(test)]
mod tests;
mod value;
mod words;

use crate::place::Place;
use crate::writes::Writes;

/// Works out what a command line would write at this place.
pub fn writes(command: &str, place: &Place<'_>) -> Writes {
    let mut reader = reader::Reader::new(*place);
    match parse::parse_at_depth(command, 0) {
        Ok(script) => reader.run_script(script),
        Err(why) => reader.writes.not_known(why.to_string()),
    }
    reader.writes
}
