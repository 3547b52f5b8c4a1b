//! Task locks of the swarm: the files, the commands, hostile things at the path, storms, kills and a full disk.

mod commands;
mod disk;
mod foreign;
mod hold;
mod hostile;
mod kills;
mod records;
mod storm;
mod support;
