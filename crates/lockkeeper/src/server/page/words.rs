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
    /// The board of requests.
    pub(super) board: &'static str,
    /// The page of runs and events.
    pub(super) activity: &'static str,
    /// The page of the doctor.
    pub(super) doctor: &'static str,
    /// Heading.
    pub(super) requests: &'static str,
    /// Column.
    pub(super) request: &'static str,
    /// Column.
    pub(super) run: &'static str,
    /// Heading.
    pub(super) runs: &'static str,
    /// Heading.
    pub(super) events: &'static str,
    /// Heading.
    pub(super) timeline: &'static str,
    /// Heading.
    pub(super) output: &'static str,
    /// Empty output.
    pub(super) no_output: &'static str,
    /// Before where the window begins.
    pub(super) from_byte: &'static str,
    /// Empty page.
    pub(super) no_requests: &'static str,
    /// What to do first.
    pub(super) no_requests_do: &'static str,
    /// Empty page.
    pub(super) no_runs: &'static str,
    /// State.
    pub(super) queued: &'static str,
    /// State.
    pub(super) running: &'static str,
    /// State.
    pub(super) done_status: &'static str,
    /// State.
    pub(super) needs_input: &'static str,
    /// State.
    pub(super) failed: &'static str,
    /// State.
    pub(super) canceled: &'static str,
    /// State.
    pub(super) cancelling: &'static str,
    /// State.
    pub(super) succeeded: &'static str,
    /// State.
    pub(super) timed_out: &'static str,
    /// State.
    pub(super) rejected: &'static str,
    /// What LOCKED says.
    pub(super) locked_means: &'static str,
    /// Button.
    pub(super) run_next: &'static str,
    /// Button.
    pub(super) auto_run: &'static str,
    /// Button.
    pub(super) run_now: &'static str,
    /// Button.
    pub(super) run_again: &'static str,
    /// Button.
    pub(super) queue_again: &'static str,
    /// Button.
    pub(super) cancel: &'static str,
    /// Question.
    pub(super) cancel_confirm: &'static str,
    /// Button.
    pub(super) stop: &'static str,
    /// Banner.
    pub(super) queue_running: &'static str,
    /// Goes on.
    pub(super) queue_stopping: &'static str,
    /// Somebody else works through the queue.
    pub(super) queue_busy: &'static str,
    /// Before a count.
    pub(super) runs_so_far: &'static str,
    /// Before other requests.
    pub(super) comes_after: &'static str,
    /// Why it waits.
    pub(super) next_attempt: &'static str,
    /// Why it waits.
    pub(super) no_worker: &'static str,
    /// Fact.
    pub(super) command: &'static str,
    /// Fact.
    pub(super) folder: &'static str,
    /// Fact.
    pub(super) queued_ago: &'static str,
    /// Fact.
    pub(super) started_ago: &'static str,
    /// Fact.
    pub(super) ended_ago: &'static str,
    /// Column.
    pub(super) took: &'static str,
    /// Fact.
    pub(super) attempt: &'static str,
    /// Fact.
    pub(super) worker: &'static str,
    /// Fact.
    pub(super) lock_holder: &'static str,
    /// Fact.
    pub(super) exit_code: &'static str,
    /// Button.
    pub(super) full_pass: &'static str,
    /// Question.
    pub(super) full_confirm: &'static str,
    /// Column.
    pub(super) check: &'static str,
    /// Column.
    pub(super) found: &'static str,
    /// Before what to do.
    pub(super) fix: &'static str,
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
    board: "Requests",
    activity: "Activity",
    doctor: "Doctor",
    requests: "Requests",
    request: "Request",
    run: "Run",
    runs: "Runs",
    events: "Events",
    timeline: "Timeline",
    output: "Output",
    no_output: "Nothing was written yet.",
    from_byte: "from byte",
    no_requests: "There are no requests",
    no_requests_do: "Put one into the queue from a terminal; it appears here at once.",
    no_runs: "There are no runs",
    queued: "queued",
    running: "running",
    done_status: "done",
    needs_input: "needs input",
    failed: "failed",
    canceled: "canceled",
    cancelling: "cancelling",
    succeeded: "succeeded",
    timed_out: "timed out",
    rejected: "rejected",
    locked_means: "It is being executed and cannot be run a second time",
    run_next: "Run next",
    auto_run: "Auto-run",
    run_now: "Run",
    run_again: "Run again",
    queue_again: "Queue again",
    cancel: "Cancel run…",
    cancel_confirm: "Call this run off? Its command and everything that it started are ended.",
    stop: "Stop",
    queue_running: "Queue running",
    queue_stopping: "stops after the present run",
    queue_busy: "Another queue run is active",
    runs_so_far: "Runs:",
    comes_after: "comes after",
    next_attempt: "waits for its next attempt",
    no_worker: "nobody works: start `lockkeeper work`, or run it here",
    command: "Command",
    folder: "Folder",
    queued_ago: "Queued",
    started_ago: "Started",
    ended_ago: "Ended",
    took: "Took",
    attempt: "Attempt",
    worker: "Worker",
    lock_holder: "Lock holder",
    exit_code: "Exit code",
    full_pass: "Full pass…",
    full_confirm: "Run the full pass? It also puts away what is stale.",
    check: "Check",
    found: "Found",
    fix: "Fix:",
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
    board: "Requests",
    activity: "アクティビティ",
    doctor: "Doctor",
    requests: "Requests",
    request: "Request",
    run: "Run",
    runs: "Run一覧",
    events: "イベント",
    timeline: "タイムライン",
    output: "出力",
    no_output: "まだ出力はありません。",
    from_byte: "先頭バイト",
    no_requests: "Requestはありません",
    no_requests_do: "ターミナルからキューに登録すると、すぐここに表示されます。",
    no_runs: "Runはありません",
    queued: "待機中",
    running: "実行中",
    done_status: "完了",
    needs_input: "入力待ち",
    failed: "失敗",
    canceled: "中止",
    cancelling: "中止処理中",
    succeeded: "成功",
    timed_out: "時間切れ",
    rejected: "拒否",
    locked_means: "実行中のため二重に実行できません",
    run_next: "次を実行",
    auto_run: "Auto-run",
    run_now: "実行",
    run_again: "再実行",
    queue_again: "再度キューへ",
    cancel: "中止…",
    cancel_confirm: "このRunを中止しますか？ コマンドとその子プロセスはすべて終了します。",
    stop: "停止",
    queue_running: "Queue running（キュー実行中）",
    queue_stopping: "現在のRunの後に停止します",
    queue_busy: "別のキュー実行が動作中",
    runs_so_far: "Run数:",
    comes_after: "先行Request:",
    next_attempt: "次の試行を待機中",
    no_worker: "実行者がいません。`lockkeeper work` を起動するか、ここで実行してください",
    command: "コマンド",
    folder: "フォルダー",
    queued_ago: "登録からの時間",
    started_ago: "開始からの時間",
    ended_ago: "終了からの時間",
    took: "所要時間",
    attempt: "試行",
    worker: "ワーカー",
    lock_holder: "ロック保持者",
    exit_code: "終了コード",
    full_pass: "フル診断…",
    full_confirm: "フル診断を実行しますか？ 期限切れのロックも回収します。",
    check: "確認項目",
    found: "結果",
    fix: "対処:",
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
    board: "请求",
    activity: "活动",
    doctor: "诊断",
    requests: "请求",
    request: "请求",
    run: "运行",
    runs: "运行",
    events: "事件",
    timeline: "时间线",
    output: "输出",
    no_output: "尚无输出。",
    from_byte: "起始字节",
    no_requests: "没有请求",
    no_requests_do: "在终端将请求放入队列，它会立即显示在这里。",
    no_runs: "没有运行",
    queued: "排队中",
    running: "运行中",
    done_status: "已完成",
    needs_input: "需要输入",
    failed: "失败",
    canceled: "已取消",
    cancelling: "正在取消",
    succeeded: "成功",
    timed_out: "超时",
    rejected: "已拒绝",
    locked_means: "正在执行，不能重复运行",
    run_next: "运行下一个",
    auto_run: "自动运行",
    run_now: "运行",
    run_again: "再次运行",
    queue_again: "重新排队",
    cancel: "取消…",
    cancel_confirm: "要取消此运行吗？其命令及其启动的所有进程都会被终止。",
    stop: "停止",
    queue_running: "Queue running（队列运行中）",
    queue_stopping: "当前运行结束后停止",
    queue_busy: "另一个队列运行正在进行",
    runs_so_far: "运行数：",
    comes_after: "排在其后：",
    next_attempt: "等待下一次尝试",
    no_worker: "没有执行者：启动 `lockkeeper work`，或在此运行",
    command: "命令",
    folder: "文件夹",
    queued_ago: "入队时长",
    started_ago: "开始时长",
    ended_ago: "结束时长",
    took: "耗时",
    attempt: "尝试",
    worker: "执行者",
    lock_holder: "锁持有者",
    exit_code: "退出码",
    full_pass: "完整诊断…",
    full_confirm: "要执行完整诊断吗？它还会回收过期的锁。",
    check: "检查项",
    found: "结果",
    fix: "处理：",
};
