// Steps of data-parallel training of a transformer of 2.4 billion parameters, as calls and work in virtual time:
//
//     twinccl predict --job examples/training-step.mjs            sums gradients while backward goes on
//     twinccl predict --job examples/training-step-after.mjs      and once backward has ended
//
// Buffers have sizes and no contents, so that a laptop runs what 8 GPUs would. The time of a layer follows from its operations.

const steps = 1;
const layers = 12;
const width = 4096;
const tokensPerRank = 2048;
const operationsPerSecond = 400e12;

const layerElements = 12 * width ** 2;
const forwardNs = (2 * layerElements * tokensPerRank * 1e9) / operationsPerSecond;
const optimizerNs = 3e6;

/** The program of one rank; with `overlap` the gradients of a layer are sent as soon as they are there. */
export function trainingStep({ overlap }) {
  return async (comm) => {
    const gradients = Array.from({ length: layers }, () => comm.alloc("bfloat16", layerElements));
    for (let step = 0; step < steps; step++) {
      comm.work(0, "step");
      for (let layer = 0; layer < layers; layer++) comm.work(forwardNs, `forward ${layer}`);
      const sums = [];
      const sum = (layer) => sums.push(comm.allReduce({ send: gradients[layer], op: "avg" }));
      for (let layer = layers - 1; layer >= 0; layer--) {
        comm.work(2 * forwardNs, `backward ${layer}`);
        if (overlap) sum(layer);
      }
      if (!overlap) for (let layer = layers - 1; layer >= 0; layer--) sum(layer);
      await Promise.all(sums);
      comm.work(optimizerNs, "optimizer");
    }
  };
}

export default trainingStep({ overlap: true });
