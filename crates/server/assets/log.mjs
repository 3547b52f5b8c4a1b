// A window that is moved over the output of a run: however long that is, the page keeps only a few pieces of it. All of
// it arrives as text, never as markup.

const PIECE = 64 * 1024;
// So many pieces are kept; those at the other end go first.
const KEPT = 6;
// Further behind than this, one who follows does not read everything in between.
const LEAP = 4 * PIECE;
// How near to an edge, in pixels, more is asked for.
const EDGE = 600;
// Between two questions of one who follows a command that writes all the time, in milliseconds.
const BREATH = 150;

const box = document.getElementById("log");
const place = document.getElementById("log-place");
const buttons = { begin: document.getElementById("log-begin"), end: document.getElementById("log-end") };
const address = box.dataset.log;

/** What is shown, in its order: the first byte of each, the byte after it, and its text in the page. */
const pieces = [];
let size = Number(box.dataset.size);
let ended = box.dataset.ended === "true";
let follows = true;
// Counts the jumps: an answer to a question from before the last one is not shown any more.
let epoch = 0;
// Counts those who follow: only the last one does.
let turn = 0;
let loading = false;
let waiting = null;

const first = () => pieces[0]?.from ?? 0;
const last = () => pieces.at(-1)?.to ?? 0;
const atEnd = () => box.scrollTop + box.clientHeight >= box.scrollHeight - 8;

async function read(query, signal) {
  const answer = await fetch(`${address}?${new URLSearchParams(query)}`, { signal });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const part = await answer.json();
  ({ size, ended } = part);
  return part;
}

function piece({ from, to, text }) {
  const node = document.createElement("span");
  node.textContent = text;
  return { from, to, node };
}

function append(part) {
  if (!part.text) return;
  const stays = follows;
  const one = piece(part);
  box.append(one.node);
  pieces.push(one);
  while (pieces.length > KEPT) {
    const before = box.scrollHeight;
    pieces.shift().node.remove();
    if (!stays) box.scrollTop -= before - box.scrollHeight;
  }
  if (stays) box.scrollTop = box.scrollHeight;
}

function prepend(part) {
  if (!part.text) return;
  const one = piece(part);
  const before = box.scrollHeight;
  box.prepend(one.node);
  box.scrollTop += box.scrollHeight - before;
  pieces.unshift(one);
  while (pieces.length > KEPT) pieces.pop().node.remove();
}

function show() {
  place.textContent = `${first()}–${last()} / ${size} B`;
  buttons.begin.disabled = first() === 0;
  buttons.end.disabled = follows && last() >= size;
}

/** Shows another place. */
async function jump(query, toEnd) {
  const now = ++epoch;
  follows = false;
  waiting?.abort();
  const part = await read({ ...query, limit: PIECE });
  if (now !== epoch) return;
  pieces.length = 0;
  box.replaceChildren();
  follows = toEnd;
  append(part);
  box.scrollTop = toEnd ? box.scrollHeight : 0;
  show();
  if (toEnd) follow();
  else await edges();
}

/** Asks for more where the window comes near an edge. */
async function edges() {
  if (loading) return;
  loading = true;
  const now = epoch;
  try {
    while (now === epoch && box.scrollTop < EDGE && first() > 0) {
      const to = first();
      const from = Math.max(0, to - PIECE);
      const part = await read({ from, limit: to - from });
      // What was cut out of a very long output leaves nothing to be shown there.
      if (now !== epoch || part.from >= to || !part.text) break;
      prepend(part);
    }
    while (now === epoch && !follows && box.scrollTop + box.clientHeight > box.scrollHeight - EDGE && last() < size) {
      const part = await read({ from: last(), limit: PIECE });
      if (now !== epoch || !part.text) break;
      append(part);
    }
  } catch {
    // The stream tells that the server is gone; the next move of the window asks again.
  }
  loading = false;
  if (now === epoch) show();
}

/** Shows what is written as it is written, while the end is looked at. */
async function follow() {
  const mine = ++turn;
  const goesOn = () => mine === turn && follows && !document.hidden;
  while (goesOn() && !ended) {
    waiting = new AbortController();
    let part;
    try {
      part = await read({ from: last(), limit: PIECE, wait: 20 }, waiting.signal);
    } catch {
      if (goesOn()) await new Promise((resolve) => setTimeout(resolve, 2000));
      continue;
    }
    if (!goesOn()) return;
    // Another attempt began anew, or much more was written than anybody reads.
    if (part.size < last() || part.size - part.to > LEAP) return jump({}, true);
    append(part);
    show();
    await new Promise((resolve) => setTimeout(resolve, BREATH));
  }
}

box.addEventListener("scroll", () => {
  const wasFollowing = follows;
  follows = atEnd() && (wasFollowing || last() >= size);
  if (follows && !wasFollowing) follow();
  if (!follows) waiting?.abort();
  show();
  edges();
});
box.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Home") jump({ from: 0 }, false);
  else if (event.key === "End") jump({}, true);
  else return;
  event.preventDefault();
});
buttons.begin.addEventListener("click", () => jump({ from: 0 }, false));
buttons.end.addEventListener("click", () => jump({}, true));
document.addEventListener("visibilitychange", () => (document.hidden ? waiting?.abort() : follow()));

const drawn = { from: Number(box.dataset.from), to: Number(box.dataset.to), text: box.textContent };
box.replaceChildren();
append(drawn);
for (const button of Object.values(buttons)) button.hidden = false;
show();
follow();
