//! The words of the page, in English, Japanese and Chinese.

use crate::messages::Language;

/// Every word that the page itself says.
pub(super) struct Words {
    /// Text of the link over the head of the page.
    pub(super) skip: &'static str,
    /// What the tabs are.
    pub(super) pages: &'static str,
    /// Before the letter that opens a tab.
    pub(super) key: &'static str,
    /// The page of locks.
    pub(super) locks: &'static str,
    /// What the choice is about.
    pub(super) language: &'static str,
    /// What the choice is about.
    pub(super) theme: &'static str,
    /// The system's own.
    pub(super) theme_auto: &'static str,
    /// Dark on light.
    pub(super) theme_light: &'static str,
    /// Light on dark.
    pub(super) theme_dark: &'static str,
    /// The stream is open.
    pub(super) live_on: &'static str,
    /// The stream is closed.
    pub(super) live_off: &'static str,
    /// Confirms.
    pub(super) yes: &'static str,
    /// Does not.
    pub(super) no: &'static str,
    /// Something worked.
    pub(super) done: &'static str,
    /// Count of leases.
    pub(super) held: &'static str,
    /// Count of tickets.
    pub(super) waiting: &'static str,
    /// The longest wait.
    pub(super) longest_wait: &'static str,
    /// Count of leases of the dead.
    pub(super) orphans: &'static str,
    /// Heading.
    pub(super) holders: &'static str,
    /// Heading.
    pub(super) waiters: &'static str,
    /// Empty page.
    pub(super) nothing_held: &'static str,
    /// What to do first.
    pub(super) nothing_held_do: &'static str,
    /// Empty list.
    pub(super) nobody_waits: &'static str,
    /// Column.
    pub(super) lease: &'static str,
    /// Before the fencing number.
    pub(super) token: &'static str,
    /// Column.
    pub(super) owner: &'static str,
    /// Column.
    pub(super) holds: &'static str,
    /// Column.
    pub(super) wants: &'static str,
    /// Column.
    pub(super) state: &'static str,
    /// Column.
    pub(super) since: &'static str,
    /// Column.
    pub(super) heartbeat: &'static str,
    /// Column.
    pub(super) ends_in: &'static str,
    /// Column.
    pub(super) process: &'static str,
    /// Column.
    pub(super) action: &'static str,
    /// Button that takes a lease away.
    pub(super) break_: &'static str,
    /// Question; the owner follows.
    pub(super) break_confirm: &'static str,
    /// Column.
    pub(super) ticket: &'static str,
    /// Column.
    pub(super) position: &'static str,
    /// Column.
    pub(super) why: &'static str,
    /// Begins a reason; what is wanted follows.
    pub(super) waits_for: &'static str,
    /// Goes on; the owner follows.
    pub(super) held_by: &'static str,
    /// Goes on; a path follows.
    pub(super) both_match: &'static str,
    /// Goes on; an owner follows.
    pub(super) behind: &'static str,
    /// Before how many are not shown.
    pub(super) more: &'static str,
    /// Heading.
    pub(super) graph: &'static str,
    /// What an arrow means.
    pub(super) graph_hint: &'static str,
    /// Alert.
    pub(super) alert_wait: &'static str,
    /// Alert.
    pub(super) alert_deadlock: &'static str,
    /// Alert.
    pub(super) alert_orphans: &'static str,
    /// Before an alert.
    pub(super) alert: &'static str,
    /// Verdict.
    pub(super) alive: &'static str,
    /// Verdict.
    pub(super) unknown: &'static str,
    /// Verdict.
    pub(super) dead: &'static str,
    /// Verdict.
    pub(super) expired: &'static str,
    /// Verdict.
    pub(super) overdue: &'static str,
    /// Heading and button.
    pub(super) login: &'static str,
    /// Above the field.
    pub(super) token_label: &'static str,
    /// Column.
    pub(super) parameter: &'static str,
    /// Column.
    pub(super) place: &'static str,
    /// Column.
    pub(super) meaning: &'static str,
    /// Heading.
    pub(super) body: &'static str,
    /// Heading.
    pub(super) answers: &'static str,
    /// Before how long something lasts.
    pub(super) for_span: &'static str,
    /// Before how long ago the holder was last heard of.
    pub(super) heartbeat_of: &'static str,
    /// After how long ago something was.
    pub(super) ago: &'static str,
    /// Alert.
    pub(super) alert_downgrades: &'static str,
}

impl Words {
    /// Those of a language.
    pub(super) const fn of(language: Language) -> &'static Self {
        match language {
            Language::En => &EN,
            Language::Ja => &JA,
            Language::Zh => &ZH,
        }
    }
}

const EN: Words = Words {
    skip: "Skip to the content",
    pages: "Pages",
    key: "Key:",
    locks: "Locks",
    language: "Language",
    theme: "Theme",
    theme_auto: "Auto",
    theme_light: "Light",
    theme_dark: "Dark",
    live_on: "live",
    live_off: "not connected",
    yes: "Yes, do it",
    no: "Cancel",
    done: "Done",
    held: "Held",
    waiting: "Waiting",
    longest_wait: "Longest wait",
    orphans: "Left by the dead",
    holders: "Who holds",
    waiters: "Who waits, and why",
    nothing_held: "Nothing is held",
    nothing_held_do: "Take a first lease from a terminal; it appears here at once.",
    nobody_waits: "Nobody waits.",
    lease: "Lease",
    token: "token",
    owner: "Owner",
    holds: "Holds",
    wants: "Wants",
    state: "State",
    since: "For",
    heartbeat: "Heartbeat",
    ends_in: "Ends in",
    process: "Process",
    action: "Action",
    break_: "Break…",
    break_confirm: "Take this lease from its holder? It is told to stop its work, and may lose what it was doing.",
    ticket: "Ticket",
    position: "Place",
    why: "Why",
    waits_for: "waiting for",
    held_by: "held by",
    both_match: "both match",
    behind: "behind",
    more: "Not shown",
    graph: "Who waits for whom",
    graph_hint: "An arrow leads from a waiter to whom it waits for.",
    alert_wait: "A wait lasts longer than a minute.",
    alert_deadlock: "Waits form a circle and never end.",
    alert_orphans: "Many leases were left by the dead; `lockkeeper locks cleanup` puts them away.",
    alert: "Attention:",
    alive: "alive",
    unknown: "unknown",
    dead: "dead",
    expired: "expired",
    overdue: "overdue",
    login: "Log in",
    token_label: "Token, from the file that the server named when it started",
    parameter: "Name",
    place: "Where, type",
    meaning: "Meaning",
    body: "Body",
    answers: "Answers",
    for_span: "for",
    heartbeat_of: "heartbeat",
    ago: "ago",
    alert_downgrades: "Parallel work often falls back to one after the other.",
};

const JA: Words = Words {
    skip: "本文へ移動",
    pages: "ページ",
    key: "キー:",
    locks: "ロック",
    language: "言語",
    theme: "テーマ",
    theme_auto: "自動",
    theme_light: "ライト",
    theme_dark: "ダーク",
    live_on: "ライブ",
    live_off: "未接続",
    yes: "はい、実行する",
    no: "キャンセル",
    done: "完了しました",
    held: "保持中",
    waiting: "待機中",
    longest_wait: "最長の待機",
    orphans: "終了済みの保持者",
    holders: "保持者",
    waiters: "待機者と理由",
    nothing_held: "保持中のロックはありません",
    nothing_held_do: "ターミナルで最初のリースを取得すると、すぐここに表示されます。",
    nobody_waits: "待機者はいません。",
    lease: "リース",
    token: "トークン",
    owner: "所有者",
    holds: "対象",
    wants: "要求",
    state: "状態",
    since: "経過",
    heartbeat: "ハートビート",
    ends_in: "残り",
    process: "プロセス",
    action: "操作",
    break_: "強制解除…",
    break_confirm: "このリースを保持者から強制的に解除しますか？ 保持者は作業の中止を求められ、途中の作業を失う可能性があります。",
    ticket: "チケット",
    position: "順番",
    why: "理由",
    waits_for: "待機対象",
    held_by: "保持者",
    both_match: "両方に一致",
    behind: "前に並ぶ",
    more: "表示していない件数",
    graph: "待機グラフ",
    graph_hint: "矢印は待機者から待たれている側へ向かいます。",
    alert_wait: "1分を超える待機があります。",
    alert_deadlock: "待機が循環しています。",
    alert_orphans: "終了したプロセスのリースが多数残っています。`lockkeeper locks cleanup` で整理できます。",
    alert: "注意:",
    alive: "生存",
    unknown: "不明",
    dead: "終了",
    expired: "期限切れ",
    overdue: "超過",
    login: "ログイン",
    token_label: "トークン（サーバー起動時に表示されたファイルにあります）",
    parameter: "名前",
    place: "場所・型",
    meaning: "意味",
    body: "本文",
    answers: "応答",
    for_span: "経過",
    heartbeat_of: "ハートビート",
    ago: "前",
    alert_downgrades: "並列実行が頻繁に直列へ切り替わっています。",
};

const ZH: Words = Words {
    skip: "跳到正文",
    pages: "页面",
    key: "按键：",
    locks: "锁",
    language: "语言",
    theme: "主题",
    theme_auto: "自动",
    theme_light: "浅色",
    theme_dark: "深色",
    live_on: "实时",
    live_off: "未连接",
    yes: "是的，执行",
    no: "取消",
    done: "已完成",
    held: "已持有",
    waiting: "等待中",
    longest_wait: "最长等待",
    orphans: "持有者已消失",
    holders: "持有者",
    waiters: "等待者及原因",
    nothing_held: "当前没有持有任何锁",
    nothing_held_do: "在终端获取第一个租约，它会立即显示在这里。",
    nobody_waits: "没有等待者。",
    lease: "租约",
    token: "令牌",
    owner: "所有者",
    holds: "持有",
    wants: "需要",
    state: "状态",
    since: "时长",
    heartbeat: "心跳",
    ends_in: "剩余",
    process: "进程",
    action: "操作",
    break_: "强制解除…",
    break_confirm: "要从持有者处强制解除此租约吗？持有者会被要求停止工作，可能丢失正在进行的内容。",
    ticket: "排队号",
    position: "位置",
    why: "原因",
    waits_for: "等待",
    held_by: "持有者",
    both_match: "两者都匹配",
    behind: "排在其后",
    more: "未显示",
    graph: "等待关系图",
    graph_hint: "箭头从等待者指向被等待者。",
    alert_wait: "有等待超过一分钟。",
    alert_deadlock: "等待形成了循环。",
    alert_orphans: "许多租约的持有者已消失；`lockkeeper locks cleanup` 可清理。",
    alert: "注意：",
    alive: "存活",
    unknown: "未知",
    dead: "已消失",
    expired: "已过期",
    overdue: "超时",
    login: "登录",
    token_label: "令牌（见服务器启动时显示的文件）",
    parameter: "名称",
    place: "位置和类型",
    meaning: "含义",
    body: "请求体",
    answers: "响应",
    for_span: "已",
    heartbeat_of: "心跳",
    ago: "前",
    alert_downgrades: "并行执行经常降级为串行。",
};
