// Log viewer: a window over the output of a run. The output may be very long; the page keeps only a few chunks of it.
// Output is always inserted as text, never as markup.

import { printable } from "/assets/page.mjs";

const CHUNK = 64 * 1024;
// How many chunks are kept. Chunks at the other end are removed first.
const MAX_CHUNKS = 6;
// When following is farther behind than this, it skips to the end.
const MAX_LAG = 4 * CHUNK;
// How close to an edge, in pixels, more output is loaded.
const EDGE = 600;
// The pause between two requests while following, in milliseconds.
const PAUSE = 150;

const box = document.getElementById("log");
const place = document.getElementById("log-place");
const buttons = { begin: document.getElementById("log-begin"), end: document.getElementById("log-end") };
const address = box.dataset.log;

/** The chunks that are shown, in order: first byte, byte after the last, and the text node. */
const chunks = [];
let size = Number(box.dataset.size);
let ended = box.dataset.ended === "true";
let follows = true;
// The number of jumps so far. A response to a request from before the last jump is discarded.
let epoch = 0;
// The number of follow loops started so far. Only the last one continues.
let follower = 0;
let loading = false;
let waiting = null;

const first = () => chunks[0]?.from ?? 0;
const last = () => chunks.at(-1)?.to ?? 0;
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
  node.textContent = printable(text);
  return { from, to, node };
}

function append(part) {
  if (!part.text) return;
  const stays = follows;
  const one = piece(part);
  box.append(one.node);
  chunks.push(one);
  while (chunks.length > MAX_CHUNKS) {
    const before = box.scrollHeight;
    chunks.shift().node.remove();
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
  chunks.unshift(one);
  while (chunks.length > MAX_CHUNKS) chunks.pop().node.remove();
}

function show() {
  place.textContent = `${first()}–${last()} / ${size} B`;
  buttons.begin.disabled = first() === 0;
  buttons.end.disabled = follows && last() >= size;
}

/** Jumps to another position of the output. */
async function jump(query, toEnd) {
  const now = ++epoch;
  follows = false;
  waiting?.abort();
  const part = await read({ ...query, limit: CHUNK });
  if (now !== epoch) return;
  chunks.length = 0;
  box.replaceChildren();
  follows = toEnd;
  append(part);
  box.scrollTop = toEnd ? box.scrollHeight : 0;
  show();
  if (toEnd) follow();
  else await edges();
}

/** Loads more output when the view is close to an edge. */
async function edges() {
  if (loading) return;
  loading = true;
  const now = epoch;
  try {
    while (now === epoch && box.scrollTop < EDGE && first() > 0) {
      const to = first();
      const from = Math.max(0, to - CHUNK);
      const part = await read({ from, limit: to - from });
      // These bytes were cut out of a very long output.
      if (now !== epoch || part.from >= to || !part.text) break;
      prepend(part);
    }
    while (now === epoch && !follows && box.scrollTop + box.clientHeight > box.scrollHeight - EDGE && last() < size) {
      const part = await read({ from: last(), limit: CHUNK });
      if (now !== epoch || !part.text) break;
      append(part);
    }
  } catch {
    // The event stream shows that the server is gone. The next scroll event tries again.
  }
  loading = false;
  if (now === epoch) show();
}

/** Shows new output as it is written, while the end is visible. */
async function follow() {
  const mine = ++follower;
  const isCurrent = () => mine === follower && follows && !document.hidden;
  while (isCurrent() && !ended) {
    waiting = new AbortController();
    let part;
    try {
      part = await read({ from: last(), limit: CHUNK, wait: 20 }, waiting.signal);
    } catch {
      if (isCurrent()) await new Promise((resolve) => setTimeout(resolve, 2000));
      continue;
    }
    if (!isCurrent()) return;
    // Another attempt started from the beginning, or the command writes faster than we show.
    if (part.size < last() || part.size - part.to > MAX_LAG) return jump({}, true);
    append(part);
    show();
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
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
