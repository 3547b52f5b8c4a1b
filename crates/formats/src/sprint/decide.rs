//! Decision: a pure function from the mode, the lock that was found and `force` to the next step.

use super::status::{Mode, Status};

/// What was found at the lock's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No file.
    Nothing,
    /// A lock that is held.
    Active,
    /// A lock that may be taken over.
    Zombie,
}

/// What the user is asked to confirm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// To take over a zombie.
    Zombie,
    /// To take the lock of a running sprint.
    Active,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Create the lock.
    Create,
    /// Overwrite the zombie at once, and print a notice.
    Override,
    /// Overwrite the lock if the user confirms. Otherwise the result is "blocked".
    Ask(Question),
    /// Remove the lock.
    Remove,
    /// Nothing to do: return this status.
    Answer(Status),
}

/// Decides on the next step.
pub const fn decide(mode: Mode, found: Found, force: bool) -> Step {
    match (mode, found) {
        (Mode::Acquire, Found::Nothing) => Step::Create,
        (Mode::Acquire, Found::Zombie) if force => Step::Override,
        (Mode::Acquire, Found::Zombie) => Step::Ask(Question::Zombie),
        (Mode::Acquire, Found::Active) if force => Step::Ask(Question::Active),
        (Mode::Acquire, Found::Active) => Step::Answer(Status::Blocked),
        (Mode::Release, Found::Nothing) => Step::Answer(Status::Released),
        (Mode::Release, Found::Active | Found::Zombie) => Step::Remove,
        (Mode::Check, Found::Nothing) => Step::Answer(Status::Clean),
        (Mode::Check, Found::Active) => Step::Answer(Status::Blocked),
        (Mode::Check, Found::Zombie) => Step::Answer(Status::ZombieDetected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirements 11, 12, 13, 17, 25, 26, 27, 28, 30, 31.
    #[test]
    fn every_case_of_the_format_has_its_step() {
        let table = [
            (Mode::Acquire, Found::Nothing, [Step::Create, Step::Create]),
            (Mode::Acquire, Found::Zombie, [Step::Ask(Question::Zombie), Step::Override]),
            (Mode::Acquire, Found::Active, [Step::Answer(Status::Blocked), Step::Ask(Question::Active)]),
            (Mode::Release, Found::Nothing, [Step::Answer(Status::Released); 2]),
            (Mode::Release, Found::Zombie, [Step::Remove; 2]),
            (Mode::Release, Found::Active, [Step::Remove; 2]),
            (Mode::Check, Found::Nothing, [Step::Answer(Status::Clean); 2]),
            (Mode::Check, Found::Zombie, [Step::Answer(Status::ZombieDetected); 2]),
            (Mode::Check, Found::Active, [Step::Answer(Status::Blocked); 2]),
        ];
        for (mode, found, [without, with]) in table {
            assert_eq!(decide(mode, found, false), without, "{mode:?} {found:?}");
            assert_eq!(decide(mode, found, true), with, "{mode:?} {found:?} by force");
        }
    }
}
