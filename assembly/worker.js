// A worker thread: takes slices of the list that the control block describes until none are left, spins for a while,
// then sleeps until the next list. Words of the control block are named in src/backends/sim/executors/wasm/threads.ts.

/** Looks at the control block before it sleeps; some tens of microseconds. */
const spins = 4000;
const pageBytes = 65_536;

function serve({ module, memory, controlAt, thread }) {
  const control = new Int32Array(memory.buffer, controlAt, 16);
  const total = new Float64Array(memory.buffer, controlAt + 64, 1);
  const failure = new Uint16Array(memory.buffer, controlAt + 72, 60);
  const { runSlice } = new WebAssembly.Instance(module, { env: { memory } }).exports;
  let seen = 0;
  /** Pages that the instance is known to reach. */
  let reached = 0;
  for (;;) {
    let round = Atomics.load(control, 0);
    for (let spin = 0; round === seen && spin < spins; spin++) round = Atomics.load(control, 0);
    if (round === seen) {
      Atomics.wait(control, 0, seen);
      continue;
    }
    seen = round;
    for (;;) {
      const claim = Atomics.load(control, 1);
      const left = claim & 0xffff;
      if (left === 0) break;
      if (reached < control[9]) {
        // V8 may miss a growth that falls into the start of a thread; growing by nothing looks the size up again.
        memory.grow(0);
        reached = memory.buffer.byteLength / pageBytes;
        if (reached < control[9]) break;
      }
      if (Atomics.compareExchange(control, 1, claim, claim - 1) !== claim) continue;
      const slices = control[6];
      const slice = slices - left;
      const scratch = (control[7] >>> 0) + thread * control[8];
      try {
        const from = Math.floor((total[0] * slice) / slices);
        const to = Math.floor((total[0] * (slice + 1)) / slices);
        runSlice(control[4] >>> 0, control[5], from, to, scratch);
      } catch (error) {
        // The text of the first failure; another thread has the place otherwise.
        if (Atomics.compareExchange(control, 3, 0, 1) === 0) {
          const text = String(error);
          const units = Math.min(text.length, failure.length);
          for (let at = 0; at < units; at++) failure[at] = text.charCodeAt(at);
          control[10] = units;
        }
      }
      if (Atomics.add(control, 2, 1) + 1 === slices) Atomics.notify(control, 2);
    }
  }
}

// Node hands over the data at the start, browsers in the first message.
if (typeof require === "function") serve(require("node:worker_threads").workerData);
else self.onmessage = ({ data }) => serve(data);
