// Draws the memory as SVG. The whole tree where its leaves fit side by side; of a larger one the
// path, its siblings with their subtrees folded, and a strip of all leaves. Text from outside only
// ever becomes a text node.
const TreeView = (() => {
  const NARROWEST = 34; // pixels for a leaf of a tree that is drawn whole
  const MOST_WHOLE = 32; // leaves of one
  const SVG = "http://www.w3.org/2000/svg";
  const ROOM_FOR_THE_REST = 482; // pixels of the page above and below the tree that should be seen with it
  const FOLDED = 48; // pixels for a leaf of a folded tree
  const MARGIN = 32; // pixels from the first leaf's middle to the edge
  const LINE = 12; // pixels from one line of text under a leaf to the next
  const SMALL = 6.4; // width of a small letter there
  const { count } = Tasks;

  function make(name, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // Cells of a node in a grid a little wider than high: 2 × 3 for six numbers, 4 × 5 for twenty.
  function grid(size) {
    let columns = Math.ceil(Math.sqrt(size));
    while (size % columns && columns < size) columns++;
    return columns > 2.5 * Math.sqrt(size) ? Math.ceil(Math.sqrt(size)) : columns;
  }

  function cells(values, side, top) {
    const columns = grid(values.length);
    return Array.from(values, (value, i) =>
      make("rect", {
        class: "cell",
        x: (i % columns) * side,
        y: Math.floor(i / columns) * side,
        width: side - 1,
        height: side - 1,
        rx: side > 7 ? 1.5 : 0.5,
        "fill-opacity": shade(value, top),
      }),
    );
  }

  // Even a small value should differ from zero, so the scale is a square root.
  const shade = (value, top) => Math.sqrt(Math.min(1, Math.max(0, value / top))).toFixed(3);

  // For each level a value that few of its numbers exceed: what is drawn darkest there. JOIN adds
  // things up, so one scale for all levels would show only the root.
  function scalesOf(trace) {
    const seen = Array.from({ length: height(trace.leaves) + 1 }, () => []);
    const note = (node, values) => {
      for (const value of values) if (value > 1e-6) seen[height(node)].push(value);
    };
    const stride = Math.ceil(trace.leaves / 64);
    for (let node = 1; node < trace.tree.length; node += node < trace.leaves ? 1 : stride) note(node, trace.tree[node]);
    for (const step of trace.steps.slice(0, 64)) {
      for (const { node, after } of [step.written, ...step.rejoined]) note(node, after);
    }
    return seen.map((values) => {
      values.sort((a, b) => a - b);
      return values.length ? values[Math.floor(0.97 * (values.length - 1))] : 1;
    });
  }

  const height = (node) => 31 - Math.clz32(node); // distance from the root

  // Cells as large, and levels as far apart, as width and height allow; a turn's label fits between.
  function measures(size, levels, widest, room, rest) {
    const columns = grid(size);
    const rows = Math.ceil(size / columns);
    const tightest = levels > 6 || room < 300 ? 24 : 29;
    const high = (room - rest - (levels - 1) * tightest) / (levels * rows);
    const side = Math.max(3, Math.min(10, Math.floor(widest / columns), Math.floor(high)));
    const [w, h] = [columns * side - 1, rows * side - 1];
    const free = (room - rest - levels * h) / Math.max(1, levels - 1);
    return { side, w, h, gap: h + Math.max(tightest, Math.min(44, free)) };
  }

  function wholeLayout(leaves, width, room, size, lines) {
    const pitch = Math.min(104, (width - 2 * MARGIN) / (leaves - 1));
    const depth = height(leaves);
    const below = 10 + LINE * (lines + 1); // the lines under a leaf
    const { side, w, h, gap } = measures(size, depth + 1, pitch - 10, room, 8 + below);
    const across = (leaves - 1) * pitch + 2 * MARGIN;
    const places = new Map();
    for (let node = 1; node < 2 * leaves; node++) {
      const level = height(node);
      const span = leaves >> level;
      const first = (node - (1 << level)) * span;
      places.set(node, { x: MARGIN + (first + (span - 1) / 2) * pitch, y: 8 + level * gap, folded: false });
    }
    return { places, side, w, h, width: across, height: 8 + depth * gap + h + below, pitch };
  }

  function foldedLayout(leaves, width, room, size, lines, path) {
    const across = Math.max(300, Math.min(width, 980));
    const depth = height(leaves);
    const below = 50 + LINE * (lines + 1); // the lines under a leaf, and the strip of all leaves
    const { side, w, h, gap } = measures(size, depth + 1, 6 * grid(size), room, 8 + below);
    // Each level is a little narrower than the one above; all of them together fit the width.
    const shrink = 0.8;
    const edge = across / 2 - w / 2 - 24;
    const least = Math.max(w / 2 + 7, Math.min(34, edge / depth)); // room for a turn's label
    const sum = (1 - shrink ** depth) / (1 - shrink);
    const reach = Math.max(0, (edge - least * depth) / sum);
    const places = new Map([[1, { x: across / 2, y: 8, folded: false }]]);
    for (let level = 1; level <= depth; level++) {
      const on = path[level];
      const { x, y } = places.get(on >> 1);
      const offset = least + reach * shrink ** (level - 1);
      for (const node of [on, on ^ 1]) {
        const folded = node !== on && level < depth;
        places.set(node, { x: x + (node & 1 ? offset : -offset), y: y + gap, folded });
      }
    }
    return { places, side, w, h, width: across, height: 8 + depth * gap + h + below, pitch: 2 * least, strip: true };
  }

  class View {
    constructor(svg, scroller, onInspect) {
      this.svg = svg;
      this.scroller = scroller;
      this.onInspect = onInspect;
      svg.addEventListener("pointerover", (event) => {
        if (event.pointerType === "mouse") this.inspect(nodeOf(event.target));
      });
      svg.addEventListener("pointerleave", () => this.inspect(null));
      svg.addEventListener("click", (event) => this.inspect(nodeOf(event.target)));
      svg.addEventListener("focusin", (event) => this.inspect(nodeOf(event.target)));
      svg.addEventListener("focusout", () => this.inspect(null));
      svg.addEventListener("keydown", (event) => this.walk(event));
    }

    // A new run: everything is drawn afresh. `items` gives all that a leaf may have to be labelled with.
    show(trace, describe, items, manyAtALeaf) {
      this.trace = trace;
      this.describe = describe;
      this.longest = Math.max(...items.map((item) => item.length));
      this.manyAtALeaf = manyAtALeaf;
      this.scales = scalesOf(trace);
      this.drawn = null;
      this.focused = 1;
    }

    top(node) {
      return this.scales[height(node)];
    }

    fit(path) {
      const width = Math.max(280, this.scroller.clientWidth - 16);
      const short = innerHeight < 500; // a phone on its side: the tree has the screen to itself
      const room = short ? innerHeight - 112 : Math.max(300, Math.min(520, innerHeight - ROOM_FOR_THE_REST));
      const { leaves } = this.trace;
      const whole = leaves <= MOST_WHOLE && width / leaves >= NARROWEST;
      const key = `${width} ${room} ${whole ? "" : path.at(-1)}`;
      if (this.drawn === key) return;
      this.drawn = key;
      const size = this.trace.tree[1].length;
      this.crowded = whole && this.longest * 7.5 > width / leaves;
      const lines = this.manyAtALeaf || this.longest * SMALL > (whole ? width / leaves : FOLDED) ? 2 : 1;
      this.layout = whole
        ? wholeLayout(leaves, width, room, size, lines)
        : foldedLayout(leaves, width, room, size, lines, path);
      this.layout.lines = lines;
      this.build();
    }

    build() {
      const { places, w, h, side } = this.layout;
      const { leaves } = this.trace;
      const hadFocus = this.svg.contains(document.activeElement);
      this.svg.replaceChildren();
      this.svg.setAttribute("width", this.layout.width);
      this.svg.setAttribute("height", this.layout.height);
      this.svg.setAttribute("viewBox", `0 0 ${this.layout.width} ${this.layout.height}`);
      this.edges = new Map();
      this.nodes = new Map();
      const lines = make("g");
      this.front = make("g"); // bold edges, above the thin ones
      const boxes = make("g");
      this.pills = make("g");
      for (const [node, { x, y, folded }] of places) {
        if (node > 1) {
          const above = places.get(node >> 1);
          const [from, to] = [above.y + h + 3, y - 3];
          const middle = (from + to) / 2;
          const d = `M${above.x} ${from}C${above.x} ${middle} ${x} ${middle} ${x} ${to}`;
          const edge = make("path", { class: "edge", d, pathLength: 1 });
          lines.append(edge);
          this.edges.set(node, edge);
        }
        const rects = cells(this.trace.tree[node], side, this.top(node));
        const inner = make("g", { transform: `translate(${x - w / 2} ${y})` }, ...rects);
        const box = make("rect", { class: "box", x: x - w / 2 - 4, y: y - 4, width: w + 8, height: h + 8, rx: 6 });
        const group = make("g", { class: "node", role: "button", tabindex: -1, "data-node": node }, box, inner);
        const entry = { group, rects, values: null, x, y };
        if (folded) {
          group.append(
            make("path", { class: "fold", d: `M${x} ${y + h + 5}l12 11h-24z` }),
            text("fold-text", x + (node & 1 ? 12 : -12), y + h + 27, `${count(leaves >> height(node))} leaves`),
          );
        }
        if (node >= leaves) {
          const { lines } = this.layout;
          entry.labels = Array.from({ length: lines }, (_, i) => text("label", x, y + h + 18 + i * LINE, ""));
          entry.mark = text("visit", x, y + h + 18 + lines * LINE, "");
          group.append(...entry.labels, entry.mark);
        }
        boxes.append(group);
        this.nodes.set(node, entry);
      }
      this.svg.append(lines, this.front, boxes, this.pills);
      if (this.layout.strip) this.buildStrip();
      this.rove(this.nodes.has(this.focused) ? this.focused : 1, hadFocus);
    }

    buildStrip() {
      const y = this.layout.height - 22;
      const across = this.layout.width - 24;
      this.strip = { x: 12, y, across, visited: make("path", { class: "strip-visited" }) };
      this.strip.now = make("rect", { class: "strip-now", y: y - 4, width: Math.max(3, across / this.trace.leaves), height: 20 });
      this.svg.append(
        text("strip-text", 12, y - 8, `all ${count(this.trace.leaves)} leaves; visited ones are shaded`),
        make("rect", { class: "strip-box", x: 12, y, width: across, height: 12 }),
        this.strip.visited,
        this.strip.now,
      );
    }

    // values: node → numbers now. moment: {path, pRight, phase, visits, labels}.
    paint(values, moment) {
      this.fit(moment.path);
      this.values = values;
      this.moment = moment;
      const { path, pRight, phase, fresh } = moment;
      const depth = path.length - 1;
      const searching = phase >= 0;
      const onPath = new Set(searching ? path : []);
      const delay = (element, share) => {
        element.classList.toggle("fresh", fresh);
        if (fresh) element.style.animationDelay = `calc(var(--beat) * ${share.toFixed(3)})`;
      };
      this.front.replaceChildren();
      for (const [node, edge] of this.edges) {
        if (!onPath.has(node)) continue;
        const bold = edge.cloneNode();
        bold.classList.add("on");
        delay(bold, (0.75 * (height(node) - 0.7)) / depth);
        this.front.append(bold);
      }
      this.pills.replaceChildren();
      if (searching) {
        pRight.forEach((p, level) => {
          const entry = this.nodes.get(path[level]);
          const pill = this.pill(entry, p);
          delay(pill, (0.75 * level) / depth);
          this.pills.append(pill);
        });
      }
      for (const [node, entry] of this.nodes) {
        if (entry.values !== values[node]) {
          entry.values = values[node];
          entry.rects.forEach((rect, i) => rect.setAttribute("fill-opacity", shade(values[node][i], this.top(node))));
        }
        const leaf = node >= this.trace.leaves;
        const classes = entry.group.classList;
        classes.toggle("on", onPath.has(node));
        classes.toggle("read", phase === 1 && node === path[depth]);
        classes.toggle("written", phase >= 2 && node === path[depth]);
        classes.toggle("joined", phase === 3 && onPath.has(node) && !leaf);
        if (phase === 3 && onPath.has(node)) delay(entry.group.firstChild, (0.6 * (depth - height(node))) / depth);
        if (leaf) this.paintLeaf(node, entry, moment);
        entry.group.setAttribute("aria-label", this.describe(node));
      }
      if (this.layout.strip) this.paintStrip(moment);
      if (fresh || !this.settled) this.reveal(path[depth]);
      this.settled = true;
      if (this.inspected) this.onInspect(this.inspected, this.nodes.get(this.inspected));
    }

    paintLeaf(node, entry, { labels, visits, phase, path }) {
      const i = node - this.trace.leaves;
      const items = labels(i);
      const lines = this.linesOf(items);
      entry.labels.forEach((label, row) => {
        label.textContent = lines[row] ?? "";
        label.classList.toggle("small", this.crowded);
      });
      entry.group.classList.toggle("empty", !items.length);
      const times = visits(i);
      const most = this.layout.pitch < 50 ? 1 : 2;
      const visited = times.length > most ? `…${count(times.at(-1))}` : times.map(count).join(", ");
      const here = node === path.at(-1);
      const word = here && phase === 1 ? "read" : here && phase >= 2 ? "written" : "";
      entry.mark.textContent = word || (visited && `№ ${visited}`);
      entry.mark.setAttribute("class", word ? `tag ${word}` : "visit");
    }

    // A leaf's items in as many lines as there are; where it is narrow, a lone pair takes two.
    linesOf(items) {
      if (items.length > this.layout.lines) return [...items.slice(0, this.layout.lines - 1), `${count(items.length - this.layout.lines + 1)} more`];
      if (this.layout.lines > items.length && items.length && !this.manyAtALeaf) return items[0].split(/(?<=:)/);
      return items;
    }

    paintStrip({ visitedLeaves, path, phase }) {
      const { x, y, across, visited, now } = this.strip;
      const each = across / this.trace.leaves;
      const bar = `h${Math.max(1, each).toFixed(2)}v12h-${Math.max(1, each).toFixed(2)}z`;
      visited.setAttribute("d", visitedLeaves().map((leaf) => `M${(x + leaf * each).toFixed(2)} ${y}${bar}`).join(""));
      now.setAttribute("x", x + (path.at(-1) - this.trace.leaves) * each);
      now.setAttribute("visibility", phase >= 0 ? "visible" : "hidden");
    }

    // The turn that was taken, and how probable it was.
    pill({ x, y }, p) {
      const words = p > 0.5 ? `right ${Math.round(100 * p)}%` : `left ${Math.round(100 * (1 - p))}%`;
      const middle = y + this.layout.h + 13;
      const half = 39;
      const inside = Math.max(half, Math.min(this.layout.width - half, x));
      return make(
        "g",
        { class: "pill", "aria-hidden": true },
        make("rect", { x: inside - half, y: middle - 8, width: 2 * half, height: 16, rx: 8 }),
        text("", inside, middle + 4, words),
      );
    }

    // Keep the leaf in sight where the tree is wider than the screen.
    reveal(node) {
      const { x } = this.nodes.get(node);
      const { scrollLeft, clientWidth, scrollWidth } = this.scroller;
      if (scrollWidth <= clientWidth) return;
      if (x < scrollLeft + 60 || x > scrollLeft + clientWidth - 60) {
        this.scroller.scrollTo({ left: x - clientWidth / 2, behavior: "smooth" });
      }
    }

    inspect(node) {
      if (node === null && this.svg.contains(document.activeElement)) {
        node = nodeOf(document.activeElement);
      }
      this.inspected = node;
      this.onInspect(node, node && this.nodes.get(node));
    }

    rove(node, focus) {
      for (const [each, entry] of this.nodes) entry.group.setAttribute("tabindex", each === node ? 0 : -1);
      this.focused = node;
      if (focus) this.nodes.get(node).group.focus({ preventScroll: true });
    }

    walk(event) {
      const node = nodeOf(event.target);
      if (node === null || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
      const down = [2 * node, 2 * node + 1].filter((child) => this.nodes.has(child));
      const onPath = down.find((child) => this.moment.path.includes(child));
      const moves = {
        ArrowUp: node >> 1,
        ArrowDown: onPath ?? down[0],
        ArrowLeft: node - 1,
        ArrowRight: node + 1,
      };
      if (event.key === "Escape") {
        event.target.blur();
        this.inspect(null);
      }
      if (!(event.key in moves)) return;
      event.preventDefault();
      event.stopPropagation();
      const next = moves[event.key];
      const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
      if (this.nodes.has(next) && !(sideways && height(next) !== height(node))) this.rove(next, true);
    }
  }

  function text(kind, x, y, words) {
    return make("text", kind ? { class: kind, x, y } : { x, y }, document.createTextNode(words));
  }

  function nodeOf(target) {
    const group = target instanceof Element ? target.closest("[data-node]") : null;
    return group ? Number(group.getAttribute("data-node")) : null;
  }

  // A picture of one value on its own, for the panel of changes.
  function picture(values, side, top) {
    const columns = grid(values.length);
    const rows = Math.ceil(values.length / columns);
    const [width, heightInPixels] = [columns * side + 5, rows * side + 5];
    const inner = make("g", { transform: "translate(2 2)" }, ...cells(values, side, top));
    return make("svg", { class: "cells", width, height: heightInPixels, "aria-hidden": true }, inner);
  }

  // The tree as a file of its own, with a line above it: what the page's style says is written into it.
  const STYLED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
    "opacity", "font-size", "font-weight", "font-family", "text-anchor"];

  function exported(svg, title) {
    const copy = svg.cloneNode(true);
    const originals = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, i) => {
      const style = getComputedStyle(originals[i]);
      for (const name of STYLED) element.setAttribute(name, style.getPropertyValue(name));
      for (const name of ["class", "style", "tabindex", "role", "aria-hidden"]) element.removeAttribute(name);
    });
    const [width, height] = ["width", "height"].map((name) => Number(svg.getAttribute(name)));
    const across = Math.max(width, 480);
    const page = getComputedStyle(document.body);
    const card = getComputedStyle(svg.closest(".card")).backgroundColor;
    const headline = text("", 12, 20, title);
    headline.setAttribute("fill", page.color);
    headline.setAttribute("font-family", page.fontFamily);
    headline.setAttribute("font-size", 13);
    const moved = make("g", { transform: `translate(${(across - width) / 2} 34)` }, ...copy.childNodes);
    const whole = make("svg", { width: across, height: height + 42, viewBox: `0 0 ${across} ${height + 42}` });
    whole.append(make("rect", { width: "100%", height: "100%", fill: card }), headline, moved);
    return new XMLSerializer().serializeToString(whole);
  }

  return { View, exported, grid, make, picture };
})();
