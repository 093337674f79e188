// A race over one input: the network in its tree, and a reader of every cell, make the same
// timesteps at the same number of looks a second.
const Race = (() => {
  const SECONDS = 10; // the slower lane takes about so long
  const SLOWEST = 24; // looks a second, where there is little to do
  const [WIDTH, MARGIN] = [640, 8];
  const [TREE, CELLS] = [96, 40]; // heights of the pictures
  const SAID = 14; // latest outputs shown

  const { count, itemText } = Tasks;
  const $ = (id) => document.getElementById(id);
  const make = TreeView.make;
  let running = 0; // a number for each race, so that a stopped one knows it is over

  // One side of the race: what it looks at in each timestep, and what it says at the end of one.
  class Lane {
    constructor(name, unit, looksPerStep, steps, said, draw) {
      Object.assign(this, { name, unit, looksPerStep, steps, said, draw });
      this.total = looksPerStep * steps;
    }

    show(looks) {
      const done = Math.min(Math.floor(looks), this.total);
      const step = Math.min(Math.floor(done / this.looksPerStep), this.steps - 1);
      this.draw(step, done - step * this.looksPerStep);
      const finished = Math.floor(done / this.looksPerStep);
      const outputs = this.said.slice(0, finished).filter((item) => item !== null);
      const latest = outputs.slice(-SAID).map(itemText).join(" ");
      $(`race-${this.name}-count`).textContent = `${count(done)} ${this.unit}s`;
      $(`race-${this.name}-said`).textContent = (outputs.length > SAID ? "… " : "") + latest;
    }
  }

  function picture(id, height) {
    const svg = $(id);
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    return svg;
  }

  function treeLane(trace, said) {
    const svg = picture("race-tree", TREE);
    const depth = Math.log2(trace.leaves);
    const place = (node) => {
      const level = 31 - Math.clz32(node);
      const x = MARGIN + ((node - 2 ** level + 0.5) / 2 ** level) * (WIDTH - 2 * MARGIN);
      return [x, MARGIN + (level / Math.max(1, depth)) * (TREE - 2 * MARGIN)];
    };
    const line = (node) => `M${place(node >> 1)}L${place(node)}`;
    const shown = Math.min(trace.leaves, 64); // deeper levels would be a blot
    const all = Array.from({ length: 2 * shown - 2 }, (_, i) => line(i + 2)).join("");
    const way = make("path", { class: "edge on" });
    const dots = make("g");
    svg.append(make("path", { class: "edge", d: all }), way, dots);
    const draw = (step, looks) => {
      const { path } = trace.steps[step];
      // Down the path; then its siblings, bottom up, to rejoin it.
      const siblings = path.slice(1).reverse().map((node) => node ^ 1);
      const seen = [...path, ...siblings].slice(0, looks);
      way.setAttribute("d", path.slice(1, looks).map(line).join(""));
      dots.replaceChildren(
        ...seen.map((node, i) => {
          const [cx, cy] = place(node);
          return make("circle", { class: i < path.length ? "look" : "look sibling", cx, cy, r: 4.5 });
        }),
      );
    };
    return new Lane("tree", "node", 2 * depth + 1, trace.steps.length, said, draw);
  }

  function cellsLane(trace, cells, said) {
    const svg = picture("race-cells", CELLS);
    const each = (WIDTH - 2 * MARGIN) / cells;
    const size = { y: MARGIN, height: CELLS - 2 * MARGIN };
    const box = make("rect", { class: "strip-box", x: MARGIN, width: cells * each, ...size });
    const seen = make("rect", { class: "looked", x: MARGIN, width: 0, ...size });
    const bars = Array.from({ length: cells + 1 }, (_, i) => `M${MARGIN + i * each} ${size.y}v${size.height}`);
    svg.append(box, seen, make("path", { class: "edge", d: each > 4 ? bars.join("") : "" }));
    const draw = (_, looks) => seen.setAttribute("width", looks * each);
    return new Lane("cells", "cell", cells, trace.steps.length, said, draw);
  }

  // `cells` is how many a reader must look at in each timestep.
  function start(trace, cells) {
    const given = trace.steps.map(({ output }) => (output && output.expected !== null ? output : null));
    const tree = treeLane(trace, given.map((output) => output && output.item));
    const reader = cellsLane(trace, cells, given.map((output) => output && output.expected));
    const rate = Math.max(SLOWEST, Math.max(tree.total, reader.total) / SECONDS);
    const mine = ++running;
    const began = performance.now();
    $("race-result").textContent = "";
    const tick = (time) => {
      if (mine !== running) return;
      const looks = (Math.max(0, time - began) * rate) / 1000;
      tree.show(looks);
      reader.show(looks);
      if (looks < Math.max(tree.total, reader.total)) requestAnimationFrame(tick);
      else $("race-result").textContent = result(tree.total, reader.total);
    };
    requestAnimationFrame(tick);
  }

  function result(nodes, cells) {
    const counts = `${count(nodes)} nodes against ${count(cells)} cells`;
    if (nodes === cells) return `A draw: ${counts}.`;
    const ratio = (Math.max(nodes, cells) / Math.min(nodes, cells)).toFixed(1);
    return `${nodes < cells ? "The tree" : "Reading every cell"} is ahead: ${counts}, a factor of ${ratio}.`;
  }

  function stop() {
    running++;
  }

  return { start, stop };
})();
