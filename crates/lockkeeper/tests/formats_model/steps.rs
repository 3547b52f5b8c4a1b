//! The steps of each kind of process, one system call each.

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The guard, exchange, compare.
    Ours,
    /// The guard, move aside, compare, publish: where names cannot be exchanged.
    OursInTwo,
    /// The guard and the exchange, but what came out is not looked at.
    OursBlind,
    /// Creates with `O_EXCL`, then writes; never breaks a lock.
    Creator,
    /// Check, delete, create: the procedure of the swarm's document, taken literally.
    Breaker,
    /// Check, rename over: the procedure of the sprint's document, taken literally.
    RenamesOver,
    /// Holds the stale record, and renews it by renaming over it.
    Revives,
}

/// A file, by who wrote it. A heartbeat writes a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Record {
    /// The one that was stale from the start.
    First,
    /// Created by this process, and not yet written.
    Torn(usize),
    /// A record of this process.
    Of(usize),
    /// Its heartbeat.
    Beat(usize),
}

impl Record {
    pub(crate) fn owner(self) -> Option<usize> {
        match self {
            Self::First => None,
            Self::Torn(owner) | Self::Of(owner) | Self::Beat(owner) => Some(owner),
        }
    }
}

/// What comes next in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    Start,
    Look,
    Write(Option<Record>),
    Publish,
    Exchange(Record),
    Compare(Record),
    /// What is put back displaces the record named here.
    PutBack(Record),
    MoveAside(Record),
    CompareAside(Record),
    PublishAfter,
    DropAside,
    /// Removes what is under the random names, and then leaves the guard.
    Clean {
        won: bool,
    },
    Leave {
        won: bool,
    },
    /// It holds the lock, and says so.
    Holds,
    BeatGuard,
    BeatLook,
    BeatExchange,
    BeatCompare,
    ReleaseGuard,
    ReleaseLook,
    ReleaseAside,
    ReleaseCompare,
    /// A foreign program writes what it created, deletes, or renames.
    FillIn,
    Delete,
    Create,
    Over,
    CheckOwn,
    DeleteOwn,
    Done,
    Dead,
}

impl At {
    /// Whether the process holds the lock as far as it knows, or is about to learn that it does.
    pub(crate) fn believes(self) -> bool {
        match self {
            Self::Holds
            | Self::FillIn
            | Self::Clean { won: true }
            | Self::Leave { won: true }
            | Self::BeatGuard
            | Self::BeatLook
            | Self::BeatExchange
            | Self::BeatCompare => true,
            Self::Start
            | Self::Look
            | Self::Write(_)
            | Self::Publish
            | Self::Exchange(_)
            | Self::Compare(_)
            | Self::PutBack(_)
            | Self::MoveAside(_)
            | Self::CompareAside(_)
            | Self::PublishAfter
            | Self::DropAside
            | Self::Clean { won: false }
            | Self::Leave { won: false }
            | Self::ReleaseGuard
            | Self::ReleaseLook
            | Self::ReleaseAside
            | Self::ReleaseCompare
            | Self::Delete
            | Self::Create
            | Self::Over
            | Self::CheckOwn
            | Self::DeleteOwn
            | Self::Done
            | Self::Dead => false,
        }
    }
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) name: Option<Record>,
    pub(crate) guard: Option<usize>,
    pub(crate) at: Vec<At>,
    /// What each process has under its random name, and moved aside.
    pub(crate) temporary: Vec<Option<Record>>,
    pub(crate) aside: Vec<Option<Record>>,
    pub(crate) kills: usize,
}

impl World {
    pub(crate) fn is_dead(&self, process: usize) -> bool {
        self.at[process] == At::Dead
    }

    fn is_stale(&self, record: Record) -> bool {
        record.owner().is_none_or(|owner| self.is_dead(owner))
    }

    fn is_own(&self, me: usize) -> bool {
        self.name.and_then(Record::owner) == Some(me)
    }

    /// Every world that one step of this process can lead to.
    pub(crate) fn after(&self, me: usize, kind: Kind) -> Vec<World> {
        match kind {
            Kind::Ours | Kind::OursInTwo | Kind::OursBlind => self.after_ours(me, kind),
            Kind::Creator | Kind::Breaker | Kind::RenamesOver | Kind::Revives => self.after_foreign(me, kind),
        }
    }

    fn then(&self, me: usize, at: At, change: impl FnOnce(&mut World)) -> Vec<World> {
        let mut world = self.clone();
        world.at[me] = at;
        change(&mut world);
        vec![world]
    }

    /// Waits until no process holds the guard. The process that enters removes the files of dead ones.
    fn enter(&self, me: usize, at: At) -> Vec<World> {
        if self.guard.is_some() {
            return Vec::new();
        }
        self.then(me, at, |world| {
            world.guard = Some(me);
            for process in 0..world.at.len() {
                if world.is_dead(process) {
                    world.temporary[process] = None;
                    world.aside[process] = None;
                }
            }
        })
    }

    fn after_ours(&self, me: usize, kind: Kind) -> Vec<World> {
        let go = |at| self.then(me, at, |_| {});
        let swap = |world: &mut World| std::mem::swap(&mut world.name, &mut world.temporary[me]);
        match self.at[me] {
            At::Start => self.enter(me, At::Look),
            At::Look => match self.name {
                None => go(At::Write(None)),
                Some(record) if self.is_stale(record) => go(At::Write(Some(record))),
                Some(_) => go(At::Leave { won: false }),
            },
            At::Write(judged) => {
                let next = match (judged, kind) {
                    (None, _) => At::Publish,
                    (Some(judged), Kind::OursInTwo) => At::MoveAside(judged),
                    (Some(judged), _) => At::Exchange(judged),
                };
                self.then(me, next, |world| world.temporary[me] = Some(Record::Of(me)))
            }
            At::Publish => match self.name {
                Some(_) => self.then(me, At::Look, |world| world.temporary[me] = None),
                None => {
                    self.then(me, At::Leave { won: true }, |world| world.name = world.temporary[me].take())
                }
            },
            At::Exchange(judged) => match self.name {
                None => self.then(me, At::Look, |world| world.temporary[me] = None),
                Some(_) => self.then(me, At::Compare(judged), swap),
            },
            At::Compare(judged) if self.temporary[me] == Some(judged) => go(At::Clean { won: true }),
            At::Compare(_) if kind == Kind::OursBlind => go(At::Clean { won: true }),
            At::Compare(_) => go(At::PutBack(Record::Of(me))),
            At::PutBack(placed) => match (self.name, self.temporary[me]) {
                (None, _) | (_, None) => go(At::Clean { won: false }),
                (Some(out), Some(coming)) => {
                    let next = if out == placed { At::Clean { won: false } } else { At::PutBack(coming) };
                    self.then(me, next, swap)
                }
            },
            At::MoveAside(judged) => match self.name {
                None => self.then(me, At::Look, |world| world.temporary[me] = None),
                Some(_) => {
                    self.then(me, At::CompareAside(judged), |world| world.aside[me] = world.name.take())
                }
            },
            At::CompareAside(judged) if self.aside[me] == Some(judged) => go(At::PublishAfter),
            At::CompareAside(_) => go(At::DropAside),
            At::PublishAfter => match self.name {
                Some(_) => go(At::Clean { won: false }),
                None => {
                    self.then(me, At::Clean { won: true }, |world| world.name = world.temporary[me].take())
                }
            },
            At::DropAside => match self.name {
                Some(_) => go(At::Clean { won: false }),
                None => self.then(me, At::Clean { won: false }, |world| world.name = world.aside[me].take()),
            },
            At::Clean { won } => self.then(me, At::Leave { won }, |world| {
                world.temporary[me] = None;
                world.aside[me] = None;
            }),
            At::Leave { won } => {
                self.then(me, if won { At::Holds } else { At::Done }, |world| world.guard = None)
            }
            // It may renew its record once, or release at once.
            At::Holds if self.name == Some(Record::Of(me)) => {
                [go(At::BeatGuard), go(At::ReleaseGuard)].concat()
            }
            At::Holds => go(At::ReleaseGuard),
            At::BeatGuard => self.enter(me, At::BeatLook),
            At::BeatLook if self.name == Some(Record::Of(me)) => {
                self.then(me, At::BeatExchange, |world| world.temporary[me] = Some(Record::Beat(me)))
            }
            At::BeatLook => go(At::Leave { won: false }),
            At::BeatExchange => match self.name {
                None => go(At::Clean { won: false }),
                Some(_) => self.then(me, At::BeatCompare, swap),
            },
            At::BeatCompare if self.temporary[me] == Some(Record::Of(me)) => go(At::Clean { won: true }),
            At::BeatCompare => go(At::PutBack(Record::Beat(me))),
            At::ReleaseGuard => self.enter(me, At::ReleaseLook),
            At::ReleaseLook if self.is_own(me) => go(At::ReleaseAside),
            At::ReleaseLook => go(At::Leave { won: false }),
            At::ReleaseAside => {
                self.then(me, At::ReleaseCompare, |world| world.aside[me] = world.name.take())
            }
            At::ReleaseCompare if self.aside[me].and_then(Record::owner) == Some(me) => {
                go(At::Clean { won: false })
            }
            At::ReleaseCompare => go(At::DropAside),
            At::FillIn | At::Delete | At::Create | At::Over | At::CheckOwn | At::DeleteOwn => {
                unreachable!("only foreign programs do that")
            }
            At::Done | At::Dead => Vec::new(),
        }
    }

    fn after_foreign(&self, me: usize, kind: Kind) -> Vec<World> {
        let go = |at| self.then(me, at, |_| {});
        match self.at[me] {
            At::Start => match (kind, self.name) {
                (Kind::Revives, Some(Record::First)) => go(At::Over),
                (Kind::Revives, _) => go(At::Done),
                (Kind::Creator, _) | (_, None) => go(At::Create),
                (_, Some(record)) if !self.is_stale(record) => go(At::Done),
                (Kind::RenamesOver, Some(_)) => go(At::Over),
                (_, Some(_)) => go(At::Delete),
            },
            At::Delete => self.then(me, At::Create, |world| world.name = None),
            At::Create => match self.name {
                Some(_) => go(At::Done),
                None => self.then(me, At::FillIn, |world| world.name = Some(Record::Torn(me))),
            },
            // It writes to the file that it has open, wherever that is by now.
            At::FillIn => self.then(me, At::Holds, |world| {
                let places = world.temporary.iter_mut().chain(&mut world.aside).chain([&mut world.name]);
                for place in places.filter(|place| **place == Some(Record::Torn(me))) {
                    *place = Some(Record::Of(me));
                }
            }),
            At::Over => self.then(me, At::Holds, |world| world.name = Some(Record::Of(me))),
            // It never lets go, so that its record has to be there at the end.
            At::Holds if kind == Kind::Revives => Vec::new(),
            At::Holds => go(At::CheckOwn),
            At::CheckOwn if self.is_own(me) => go(At::DeleteOwn),
            At::CheckOwn => go(At::Done),
            At::DeleteOwn => self.then(me, At::Done, |world| world.name = None),
            At::Done | At::Dead => Vec::new(),
            other => unreachable!("{other:?} is a step of ours"),
        }
    }
}
