// A worker thread: takes slices of the list that the control block describes until none are left, spins for a while,
// then sleeps until the next list. Words of the control block are named in src/backends/sim/executors/wasm/threads.ts.

/** Looks at the control block before it sleeps; some tens of microseconds. */
const spins = 4000;

function serve({ module, memory, controlAt, thread }) {
  const control = new Int32Array(memory.buffer, controlAt, 16);
  const total = new Float64Array(memory.buffer, controlAt + 64, 1);
  const { runSlice } = new WebAssembly.Instance(module, { env: { memory } }).exports;
  let seen = 0;
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
      if (Atomics.compareExchange(control, 1, claim, claim - 1) !== claim) continue;
      const slices = control[6];
      const slice = slices - left;
      const scratch = (control[7] >>> 0) + thread * control[8];
      try {
        const from = Math.floor((total[0] * slice) / slices);
        const to = Math.floor((total[0] * (slice + 1)) / slices);
        runSlice(control[4] >>> 0, control[5], from, to, scratch);
      } catch {
        Atomics.store(control, 3, 1);
      }
      if (Atomics.add(control, 2, 1) + 1 === slices) Atomics.notify(control, 2);
    }
  }
}

// Node hands over the data at the start, browsers in the first message.
if (typeof require === "function") serve(require("node:worker_threads").workerData);
else self.onmessage = ({ data }) => serve(data);
