"""What the timeline looks like: HTML, style and script, with places ``@@name@@`` for what differs.

Nothing is loaded from elsewhere, which the page itself forbids.  Names reach the document as text only.
"""

from __future__ import annotations

_STYLE = """
:root { color-scheme: light dark; --page:#fbfbfa; --ink:#1d2126; --soft:#69717c; --line:#d9dde2; --panel:#ffffff;
  --bad:#c62828; --warn:#b26a00; }
@media (prefers-color-scheme: dark) { :root { --page:#14171a; --ink:#e6e8ea; --soft:#98a2ad; --line:#30363d;
  --panel:#1b1f24; --bad:#ff6b6b; --warn:#f0b35a; } }
body { margin:0; padding:20px 24px 40px; background:var(--page); color:var(--ink);
  font:14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size:20px; margin:0; } h2 { font-size:14px; margin:22px 0 6px; }
p { margin:4px 0 12px; } h2 .soft { font-weight:400; } .soft { color:var(--soft); }
.bar { display:flex; flex-wrap:wrap; gap:8px 14px; align-items:center; margin:10px 0; position:sticky; top:0;
  background:var(--page); padding:6px 0; z-index:2; }
button, input, select { font:inherit; color:inherit; background:var(--panel); border:1px solid var(--line);
  border-radius:6px; padding:3px 10px; } input { width:15em; }
.chip { display:inline-flex; align-items:center; gap:6px; max-width:24em; cursor:default; }
.chip span { overflow:hidden; text-overflow:ellipsis; white-space:nowrap; }
.chip i { width:11px; height:11px; border-radius:3px; flex:none; }
canvas { display:block; width:100%; background:var(--panel); border:1px solid var(--line); border-radius:8px;
  cursor:crosshair; }
#tip { position:fixed; display:none; pointer-events:none; white-space:pre-line; background:var(--panel);
  border:1px solid var(--line); border-radius:8px; padding:6px 10px; box-shadow:0 3px 14px #0003; max-width:34em;
  overflow-wrap:anywhere; z-index:3; }
.wide { overflow-x:auto; } table { border-collapse:collapse; margin-top:4px; }
th, td { padding:3px 12px 3px 0; text-align:right; font-variant-numeric:tabular-nums; font-weight:400; }
th:first-child { text-align:left; } thead th { color:var(--soft); } tr { border-bottom:1px solid var(--line); }
"""

_SCRIPT = r"""
"use strict";
const D = JSON.parse(document.getElementById("data").textContent), $ = id => document.getElementById(id);
const LEFT = 150, RIGHT = 14, TOP = 22, dpr = window.devicePixelRatio || 1;
const HUES = [212, 28, 150, 338, 268, 48, 184, 4, 98, 300];
const dark = matchMedia("(prefers-color-scheme: dark)");
const color = (m, alpha) => {
  const turn = Math.floor(m / HUES.length), light = (dark.matches ? 62 : 48) + (turn % 2 ? 14 : 0) - (turn > 1 ? 8 : 0);
  return `hsla(${(HUES[m % HUES.length] + 17 * turn) % 360}, 66%, ${light}%, ${alpha === undefined ? 1 : alpha})`;
};
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let t0 = 0, t1 = D.end, rows = [], hover = null, drag = null;
const number = n => n.toLocaleString("en");
const clock = (t, fine) => new Date(D.start + t).toISOString().slice(11, fine ? 23 : 19);
const long = ms => ms < 1000 ? ms + " ms" : ms < 60000 ? (ms / 1000).toFixed(1) + " s" :
  ms < 3600000 ? Math.floor(ms / 60000) + " min " + Math.round(ms % 60000 / 1000) + " s" :
  Math.floor(ms / 3600000) + " h " + Math.round(ms % 3600000 / 60000) + " min";
const ENDS = { released: "released, all committed", expired: "left before its batch was committed",
  lost: "taken away without asking", left: "its application left", taken: "given to another, its end untold", open: "" };
const BAD = new Set(["expired", "lost", "taken"]);

// What there is of each, by member or partition, in the order of time.
const by = (list, of, n) => { const found = Array.from({ length: n }, () => []); for (const x of list) found[x[of]].push(x);
  return found; };
const batches = by(D.batches, 0, D.members.length), marks = by(D.marks, 0, D.members.length);
const lags = by(D.lag, 0, D.members.length), spans = by(D.spans, 1, D.partitions.length);
// How many partitions each member has: a step at each change.
const shares = D.members.map(() => []);
for (const [m, , start, end, , how] of D.spans) { shares[m].push([start, 1]); if (how !== "open") shares[m].push([end, -1]); }
let mostOwned = 1;
for (const steps of shares) { steps.sort((a, b) => a[0] - b[0] || a[1] - b[1]); let n = 0;
  for (const step of steps) { n += step[1]; step[1] = n; mostOwned = Math.max(mostOwned, n); } }
// Until when each member had something.
const gone = D.members.map(() => 0);
for (const [m, , , end] of D.spans) gone[m] = Math.max(gone[m], end);
const at = (steps, t, none) => { let low = 0, high = steps.length;
  while (low < high) { const mid = low + high >> 1; if (steps[mid][steps[mid].length === 3 ? 1 : 0] <= t) low = mid + 1;
    else high = mid; }
  return low ? steps[low - 1] : none; };

const x = (t, w) => LEFT + (t - t0) / (t1 - t0) * (w - LEFT - RIGHT);
const timeAt = (px, w) => Math.min(t1, Math.max(t0, t0 + (px - LEFT) / (w - LEFT - RIGHT) * (t1 - t0)));
const fit = (c, text, width) => { if (c.measureText(text).width <= width) return text;
  let n = text.length; while (n > 3 && c.measureText(text.slice(0, n / 2) + "…" + text.slice(-n / 2)).width > width) n -= 1;
  return text.slice(0, n / 2) + "…" + text.slice(-n / 2); };

function begin(id, height) {
  const canvas = $(id), width = canvas.clientWidth, c = canvas.getContext("2d");
  canvas.width = width * dpr; canvas.height = height * dpr; canvas.style.height = height + "px";
  c.setTransform(dpr, 0, 0, dpr, 0, 0); c.font = "11px system-ui, 'DejaVu Sans', sans-serif"; c.textBaseline = "middle";
  const steps = [50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5,
    864e5, 6048e5];
  const room = (width - LEFT - RIGHT) / 90, step = steps.find(s => (t1 - t0) / s <= room) || steps[steps.length - 1];
  c.fillStyle = css("--soft"); c.strokeStyle = css("--line"); c.textAlign = "center"; c.lineWidth = 1;
  for (let t = Math.ceil((D.start + t0) / step) * step - D.start; t <= t1; t += step) {
    const px = Math.round(x(t, width)) + .5;
    c.beginPath(); c.moveTo(px, TOP); c.lineTo(px, height); c.stroke();
    if (px > LEFT + 25 && px < width - 25) c.fillText(clock(t, step < 1000), px, TOP / 2);
  }
  c.textAlign = "left";
  return [c, width];
}
const inside = (c, width, height, draw) => { c.save(); c.beginPath(); c.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP);
  c.clip(); draw(); c.restore(); };
function ruler(c, width, height) {
  if (drag) { c.fillStyle = css("--ink"); c.globalAlpha = .12;
    c.fillRect(Math.min(drag[0], drag[1]), TOP, Math.abs(drag[1] - drag[0]), height - TOP); c.globalAlpha = 1; }
  if (hover !== null) { const px = Math.round(x(hover, width)) + .5; c.strokeStyle = css("--soft"); c.beginPath();
    c.moveTo(px, TOP); c.lineTo(px, height); c.stroke(); }
}

function drawLag() {
  const height = 120, [c, width] = begin("lag", height);
  let most = 0;
  for (const steps of lags) { const first = at(steps, t0, null); if (first) most = Math.max(most, first[2]);
    for (const s of steps) if (s[1] >= t0 && s[1] <= t1) most = Math.max(most, s[2]); }
  c.fillStyle = css("--soft");
  c.fillText(D.lag.length ? number(most) : "no lag in these logs", 10, TOP + 6); c.fillText("0", 10, height - 10);
  const y = lag => height - 8 - (most ? lag / most : 0) * (height - TOP - 14);
  inside(c, width, height, () => lags.forEach((steps, m) => {
    if (!steps.length) return;
    c.strokeStyle = color(m); c.lineWidth = 1.6; c.beginPath();
    let last = null;
    for (const s of steps) { const px = x(s[1], width); if (last === null) c.moveTo(px, y(s[2]));
      else { c.lineTo(px, y(last)); c.lineTo(px, y(s[2])); } last = s[2]; }
    c.lineTo(x(gone[m], width), y(last)); c.stroke();
  }));
  ruler(c, width, height);
}

const ROW = 44;
function drawMembers() {
  const height = TOP + ROW * D.members.length + 6, [c, width] = begin("members", height);
  D.members.forEach((name, m) => {
    const top = TOP + m * ROW, floor = top + ROW - 16;
    c.fillStyle = css("--ink"); c.fillText(fit(c, name, LEFT - 20), 10, top + 17);
    inside(c, width, height, () => {
      let owned = 0, since = 0;
      const area = until => { if (!owned || until < t0 || since > t1) return; const h = 4 + owned / mostOwned * (ROW - 24);
        c.fillStyle = color(m, .55); c.fillRect(x(since, width), floor - h, x(until, width) - x(since, width), h); };
      for (const [t, n] of shares[m]) { area(t); owned = n; since = t; }
      area(D.end);
      let edge = -1;
      for (const [, start, end, , , replay] of batches[m]) { if (end < t0 || start > t1) continue;
        const from = Math.max(LEFT, x(start, width)), to = Math.max(from + 1, x(end, width) - .5);
        if (to <= edge) continue;  // nothing of it would be seen
        edge = to; c.fillStyle = replay ? css("--warn") : color(m); c.fillRect(from, floor + 3, to - from, 6); }
      for (const [, t, what] of marks[m]) { if (t < t0 || t > t1) continue; const px = x(t, width);
        const bad = BAD.has(what) || what === "recordsLost", odd = bad || what === "draining" || what === "commitFailed" ||
          what === "rewound" || what === "replayed" || what === "logChanged";
        c.fillStyle = bad ? css("--bad") : odd ? css("--warn") : css("--ink"); c.beginPath();
        c.moveTo(px, top + 10); c.lineTo(px - 4, top + 3); c.lineTo(px + 4, top + 3); c.fill(); }
    });
  });
  ruler(c, width, height);
}

const rowHeight = () => { const chosen = +$("size").value; return chosen || Math.max(1, Math.min(16, Math.floor(640 / rows.length))); };
function drawPartitions() {
  const h = rowHeight(), height = TOP + rows.length * h + 6, [c, width] = begin("partitions", height);
  const every = h >= 11 ? 1 : Math.ceil(12 / h);
  c.fillStyle = css("--soft");
  rows.forEach((p, r) => { if (r % every === 0) c.fillText(fit(c, D.partitions[p], LEFT - 20), 10, TOP + r * h + Math.max(h / 2, 6)); });
  const gap = h > 4 ? 1 : 0;
  inside(c, width, height, () => rows.forEach((p, r) => { const top = TOP + r * h;
    for (const [m, , start, end, draining, how] of spans[p]) { if (end < t0 || start > t1) continue;
      const from = x(start, width), to = Math.max(from + 1, x(end, width)), full = draining < 0 ? to : x(draining, width);
      c.fillStyle = color(m, .85); c.fillRect(from, top, full - from, h - gap);
      if (full < to) { c.fillStyle = color(m, .4); c.fillRect(full, top, to - full, h - gap); }
      if (BAD.has(how)) { c.fillStyle = css("--bad"); c.fillRect(to - 2, top, 2, Math.max(1, h - gap)); } }
  }));
  ruler(c, width, height);
}
const draw = () => { drawLag(); drawMembers(); drawPartitions(); };
let asked = false;
const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } };

const owners = spans.map(list => list.map(span => span[0]).reverse());
function choose() {
  const text = $("filter").value.toLowerCase();
  rows = D.partitions.map((_, p) => p).filter(p => D.partitions[p].toLowerCase().includes(text));
  if ($("order").value === "owner") rows.sort((a, b) => { const one = owners[a], other = owners[b];
    for (let i = 0; i < one.length && i < other.length; i += 1) if (one[i] !== other[i]) return one[i] - other[i];
    return one.length - other.length || a - b; });
  $("rows").textContent = rows.length === D.partitions.length ? "" : rows.length + " of " + D.partitions.length;
  redraw();
}
function zoom(from, to) { const least = Math.min(50, D.end); if (to - from < least) to = from + least;
  t0 = Math.max(0, Math.min(from, D.end - least)); t1 = Math.min(D.end, to); redraw(); }
const scale = f => { const mid = (t0 + t1) / 2, half = (t1 - t0) / 2 * f; zoom(mid - half, mid + half); };
const pan = f => { const w = t1 - t0, by = Math.max(-t0, Math.min(D.end - t1, f * w)); zoom(t0 + by, t1 + by); };

function what(id, px, py, width) {
  const t = timeAt(px, width), lines = [clock(t, t1 - t0 < 60000) + " UTC"], near = 6 / (width - LEFT - RIGHT) * (t1 - t0);
  if (id === "lag") lags.forEach((steps, m) => { const s = at(steps, t, null); if (s) lines.push(D.members[m] + ": " + number(s[2])); });
  if (id === "members") { const m = Math.floor((py - TOP) / ROW); if (m < 0 || m >= D.members.length) return null;
    const owned = at(shares[m], t, [0, 0])[1]; lines.push(D.members[m], number(owned) + " partitions");
    for (const [, start, end, records, n, replay] of batches[m]) if (start <= t + near && end >= t - near) {
      lines.push((n > 1 ? number(n) + " batches" : replay ? "a batch runs again" : "a batch") + ": " + number(records) +
        " records in " + long(end - start)); break; }
    for (const [, when, name, n] of marks[m].filter(k => Math.abs(k[1] - t) <= near).slice(0, 6))
      lines.push(name + (n ? ", " + number(n) + (n > 1 ? " partitions" : " partition") : "") + " at " + clock(when, true)); }
  if (id === "partitions") { const p = rows[Math.floor((py - TOP) / rowHeight())]; if (p === undefined) return null;
    lines.push(D.partitions[p]); let nobody = true;
    for (const [m, , start, end, draining, how] of spans[p]) if (start <= t && end >= t) { nobody = false;
      lines.push(D.members[m] + " for " + long(end - start) + (draining >= 0 && draining <= t ? ", handing over" : ""));
      if (draining >= 0) lines.push("hand-over took " + long(end - draining));
      if (ENDS[how]) lines.push(ENDS[how] + " at " + clock(end, true)); }
    if (nobody) lines.push("nobody"); }
  return lines.join("\n");
}
for (const id of ["lag", "members", "partitions"]) { const canvas = $(id), tip = $("tip");
  canvas.addEventListener("pointermove", e => { const box = canvas.getBoundingClientRect(), px = e.clientX - box.left;
    hover = timeAt(px, box.width); if (drag) drag[1] = px;
    const text = what(id, px, e.clientY - box.top, box.width); tip.style.display = text ? "block" : "none";
    tip.textContent = text || "";
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px"; redraw(); });
  canvas.addEventListener("pointerleave", () => { hover = null; tip.style.display = "none"; redraw(); });
  canvas.addEventListener("pointerdown", e => { const px = e.clientX - canvas.getBoundingClientRect().left; drag = [px, px];
    canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", () => { if (drag && Math.abs(drag[1] - drag[0]) > 5) { const w = canvas.clientWidth;
    const [a, b] = [timeAt(drag[0], w), timeAt(drag[1], w)]; drag = null; zoom(Math.min(a, b), Math.max(a, b)); }
    drag = null; redraw(); });
  canvas.addEventListener("dblclick", () => zoom(0, D.end));
  canvas.addEventListener("wheel", e => { if (!e.ctrlKey && !e.metaKey) return; e.preventDefault();
    const t = timeAt(e.clientX - canvas.getBoundingClientRect().left, canvas.clientWidth), f = e.deltaY > 0 ? 1.25 : .8;
    zoom(t - (t - t0) * f, t + (t1 - t) * f); }, { passive: false }); }
$("in").onclick = () => scale(.5); $("out").onclick = () => scale(2); $("all").onclick = () => zoom(0, D.end);
$("filter").oninput = choose; $("order").onchange = choose; if (D.partitions.length > 100) $("order").value = "owner";
 $("size").onchange = redraw;
addEventListener("keydown", e => { if (e.target !== document.body) return;
  if (e.key === "ArrowLeft") pan(-.25); else if (e.key === "ArrowRight") pan(.25); else if (e.key === "+") scale(.5);
  else if (e.key === "-") scale(2); else if (e.key === "0") zoom(0, D.end); });
D.members.forEach((name, m) => { const chip = document.createElement("span"), box = document.createElement("i");
  const text = document.createElement("span"); chip.className = "chip"; chip.title = name; box.dataset.m = m;
  text.textContent = name; chip.append(box, text); $("legend").append(chip); });
const paint = () => { for (const box of document.querySelectorAll("i[data-m]")) box.style.background = color(+box.dataset.m);
  redraw(); };
addEventListener("resize", redraw); dark.addEventListener("change", paint); choose(); paint();
zoom(Math.min(D.view[0], D.end), D.view[1]);
"""

TEMPLATE = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@@title@@</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>@@title@@</h1>
<p class="soft">@@summary@@</p>
<div class="bar"><span id="legend" style="display:contents"></span></div>
<p class="soft"><button id="in">zoom in</button> <button id="out">zoom out</button> <button id="all">all</button>
 Drag across a stretch of time to see it closer; double-click shows all. Arrow keys move, Ctrl and the wheel zoom.</p>
<noscript><p>The pictures need JavaScript; the table below does not.</p></noscript>
<h2>Lag <span class="soft">log end minus committed offset, of each application's partitions</span></h2>
<canvas id="lag"></canvas>
<h2>Applications <span class="soft">area: partitions owned; bars: batches; triangles: joins and rebalances, in
 orange hand-overs, replays and failed commits, in red what may be processed twice</span></h2>
<canvas id="members"></canvas>
<h2>Partitions <span class="soft">colour: the owner; pale: handing over; red edge: ended without a commit</span></h2>
<p><input id="filter" placeholder="part of a name" aria-label="Show partitions with"> <select id="size"
 aria-label="Height of rows"><option value="0">fit</option><option value="1">1 px</option><option value="3">3 px</option>
<option value="6">6 px</option><option value="14">14 px</option></select> <select id="order" aria-label="Order of rows"><option value="name">by name</option>
<option value="owner">by last owner</option></select> <span id="rows" class="soft"></span></p>
<canvas id="partitions"></canvas>
<h2>In all</h2>
<div class="wide"><table><thead><tr>@@head@@</tr></thead><tbody>
@@rows@@
</tbody></table></div>
<div id="tip"></div>
<script type="application/json" id="data">@@data@@</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""
"""The page."""
