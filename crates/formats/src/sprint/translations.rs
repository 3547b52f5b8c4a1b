//! Translations of all texts of the sprint lock.
//!
//! The Chinese prompts are those of the format's own document, word for word. Sentences that the document has in English
//! (see [`Problem`](super::Problem) and [`Status`](super::Status)) are the same in every language, because programs
//! search for them. So they are not here.

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lang {
    /// English.
    En,
    /// Japanese.
    Ja,
    /// Chinese.
    Zh,
}

impl Lang {
    /// Returns the language of a setting; English for any other value.
    pub fn of(setting: Option<&str>) -> Self {
        match setting {
            Some("ja") => Self::Ja,
            Some("zh") => Self::Zh,
            Some(_) | None => Self::En,
        }
    }
}

/// A text. A word in braces stands for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Asks whether to take over a zombie.
    ZombiePrompt,
    /// Asks, with a warning, whether to take the lock of a running sprint.
    ActivePrompt,
    /// The user did not confirm.
    NotConfirmed,
    /// Another user's zombie, which only that user or root takes over.
    NotOurs,
    /// Another sprint was faster.
    Overtaken,
    /// The lock cannot be judged.
    HeldUnknown,
    /// A check found a zombie.
    Zombie,
    /// A check found no lock.
    Clean,
    /// A zombie was taken over because of `--force`.
    Override,
    /// Which process holds the lock.
    HeldByProcess,
    /// No process outlives the command.
    NoHolderProcess,
    /// Git does not ignore the file.
    NotIgnored,
    /// Stands for a value that the file does not have.
    Unknown,
    /// An age. In questions it is that of the format, in every language.
    Ago,
}

impl Text {
    /// Returns the text in a language, with its values filled in.
    pub fn fill(self, lang: Lang, values: &[(&str, &str)]) -> String {
        fill(self.template(lang), values)
    }

    const fn template(self, lang: Lang) -> &'static str {
        let (english, japanese, chinese) = match self {
            Self::ZombiePrompt => (
                "Zombie lock found:\n- PID: {pid} (process state: {state})\n- Session: {session_id}\n\
                 - Started: {started_at} ({age})\n- Epic: {epic_spec}\n\n\
                 Overwrite this lock and start a new sprint? [y/N]",
                "ゾンビロックを検出しました：\n- PID: {pid} (プロセスの状態: {state})\n- セッション: {session_id}\n\
                 - 開始時刻: {started_at} ({ago})\n- Epic: {epic_spec}\n\n\
                 このロックを上書きして新しい Sprint を開始しますか? [y/N]",
                "检测到僵尸锁：\n- PID: {pid} (进程状态: {state})\n- Session: {session_id}\n\
                 - 启动时间: {started_at} ({age})\n- Epic: {epic_spec}\n\n\
                 是否覆盖此锁并启动新 Sprint? [y/N]",
            ),
            Self::ActivePrompt => (
                "Warning: a sprint is running!\n- PID: {pid} (process state: {state})\n- Session: {session_id}\n\
                 - Started: {started_at} ({age})\n\
                 Overwriting its lock by force may damage its state files. Overwrite? [y/N]",
                "警告: 実行中の Sprint プロセスを検出しました！\n- PID: {pid} (プロセスの状態: {state})\n\
                 - セッション: {session_id}\n- 開始時刻: {started_at} ({ago})\n\
                 強制的に上書きすると状態ファイルが壊れる可能性があります。上書きしますか? [y/N]",
                "警告: 检测到活跃的 Sprint 进程！\n- PID: {pid} (进程状态: {state})\n- Session: {session_id}\n\
                 - 启动时间: {started_at} ({age})\n\
                 强制覆盖可能导致状态文件损坏。确认覆盖? [y/N]",
            ),
            Self::NotConfirmed => (
                "Lock not overwritten: nobody confirmed it (PID: {pid}, session: {session_id}, started: {started_at})",
                "ロックは上書きされませんでした: 確認が得られませんでした (PID: {pid}, セッション: {session_id}, 開始時刻: {started_at})",
                "锁未被覆盖：未得到确认 (PID: {pid}, 会话: {session_id}, 启动时间: {started_at})",
            ),
            Self::NotOurs => (
                "Zombie lock of another user, not overwritten (PID: {pid}, session: {session_id}, started: {started_at})",
                "別のユーザーのゾンビロックのため、上書きしませんでした (PID: {pid}, セッション: {session_id}, 開始時刻: {started_at})",
                "僵尸锁属于其他用户，未被覆盖 (PID: {pid}, 会话: {session_id}, 启动时间: {started_at})",
            ),
            Self::Overtaken => (
                "Lock not acquired: another program changed it at the same time",
                "ロックを取得できませんでした: 別のプログラムが同時に変更しました",
                "未获取锁：另一个程序同时更改了它",
            ),
            Self::HeldUnknown => (
                "Sprint lock present, but its holder cannot be judged: it counts as held",
                "Sprint のロックはありますが、保持者を判定できないため、保持中とみなします",
                "存在 Sprint 锁，但无法判断其持有者：视为被占用",
            ),
            Self::Zombie => (
                "Zombie lock found (PID: {pid}, process state: {state}, session: {session_id}, started: {started_at}, {ago})",
                "ゾンビロックを検出しました (PID: {pid}, プロセスの状態: {state}, セッション: {session_id}, 開始時刻: {started_at}, {ago})",
                "检测到僵尸锁 (PID: {pid}, 进程状态: {state}, 会话: {session_id}, 启动时间: {started_at}, {ago})",
            ),
            Self::Clean => ("No sprint lock", "Sprint のロックはありません", "没有 Sprint 锁"),
            Self::Override => (
                "zombie lock overwritten by --force (PID: {pid}, session: {session_id}, started: {started_at})",
                "--force によりゾンビロックを上書きしました (PID: {pid}, セッション: {session_id}, 開始時刻: {started_at})",
                "已通过 --force 覆盖僵尸锁 (PID: {pid}, 会话: {session_id}, 启动时间: {started_at})",
            ),
            Self::HeldByProcess => (
                "the lock is held while process {pid} lives: {reason}",
                "プロセス {pid} が生きている間、ロックは保持されます\n  詳細: {reason}",
                "只要进程 {pid} 存活，锁就有效\n  详情: {reason}",
            ),
            Self::NoHolderProcess => (
                "the lock is held until it is released or 24 hours old: no process here outlives this command, \
                 so that process {pid} was recorded; name a better one with --pid",
                "このコマンドより長く生きるプロセスがないため、プロセス {pid} を記録しました。ロックは解放されるか \
                 24 時間が過ぎるまで保持されます。--pid で指定できます",
                "没有比此命令存活更久的进程，因此记录了进程 {pid}：锁在释放之前或 24 小时内有效；可用 --pid 指定",
            ),
            Self::NotIgnored => (
                "git does not ignore {file}: add the line /{file} to .gitignore",
                "git は {file} を無視していません: .gitignore に /{file} の行を追加してください",
                "git 没有忽略 {file}：请在 .gitignore 中添加一行 /{file}",
            ),
            Self::Unknown => ("unknown", "不明", "未知"),
            Self::Ago => ("{hours}h ago", "{hours} 時間前", "{hours} 小时前"),
        };
        match lang {
            Lang::En => english,
            Lang::Ja => japanese,
            Lang::Zh => chinese,
        }
    }
}

/// Replaces each `{name}` once. Braces inside a value stay as they are.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let Some((name, behind)) = after.split_once('}') else { break };
        match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => text.push_str(value),
            None => text.extend(["{", name, "}"]),
        }
        rest = behind;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [(&str, &str); 6] = [
        ("pid", "12345"),
        ("state", "dead"),
        ("session_id", "s-{pid}"),
        ("started_at", "2026-02-07T22:30:00Z"),
        ("age", "2.5h ago"),
        ("epic_spec", "epic5"),
    ];

    /// Requirement 28.
    #[test]
    fn the_chinese_question_about_a_zombie_is_that_of_the_format() {
        let expected = "检测到僵尸锁：
- PID: 12345 (进程状态: dead)
- Session: s-{pid}
- 启动时间: 2026-02-07T22:30:00Z (2.5h ago)
- Epic: epic5

是否覆盖此锁并启动新 Sprint? [y/N]";
        assert_eq!(Text::ZombiePrompt.fill(Lang::Zh, &VALUES), expected);
    }

    /// Requirement 30.
    #[test]
    fn the_chinese_warning_about_a_running_sprint_is_that_of_the_format() {
        let expected = "警告: 检测到活跃的 Sprint 进程！
- PID: 12345 (进程状态: dead)
- Session: s-{pid}
- 启动时间: 2026-02-07T22:30:00Z (2.5h ago)
强制覆盖可能导致状态文件损坏。确认覆盖? [y/N]";
        assert_eq!(Text::ActivePrompt.fill(Lang::Zh, &VALUES), expected);
    }

    #[test]
    fn every_text_has_the_same_values_in_every_language() {
        let names = |template: &str| -> Vec<String> {
            let mut names: Vec<String> =
                template.split('{').skip(1).map(|part| part.split_once('}').unwrap().0.to_owned()).collect();
            names.sort();
            names.dedup();
            names
        };
        let texts = [
            Text::ZombiePrompt,
            Text::ActivePrompt,
            Text::NotConfirmed,
            Text::NotOurs,
            Text::Overtaken,
            Text::HeldUnknown,
            Text::Zombie,
            Text::Clean,
            Text::Override,
            Text::HeldByProcess,
            Text::NoHolderProcess,
            Text::NotIgnored,
            Text::Unknown,
            Text::Ago,
        ];
        for text in texts {
            let template = text.template(Lang::En).replace("{ago}", "{age}");
            let english = names(&template);
            for lang in [Lang::Ja, Lang::Zh] {
                // The age in English is `age`, that in the language of the text is `ago`.
                let template = text.template(lang).replace("{ago}", "{age}");
                assert_eq!(names(&template), english, "{text:?} {lang:?}");
                assert_ne!(text.template(lang), text.template(Lang::En), "{text:?} {lang:?}");
            }
        }
    }

    #[test]
    fn an_unknown_language_is_english() {
        assert_eq!(
            [Some("ja"), Some("zh"), Some("fr"), None].map(Lang::of),
            [Lang::Ja, Lang::Zh, Lang::En, Lang::En]
        );
    }
}
