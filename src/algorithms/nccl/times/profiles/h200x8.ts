/** The profile of eight H200, written by `npm run profile:fit`; docs/predict.md has the meaning of every number. */
import type { MachineProfile } from "../profile.ts";

export const h200x8Profile: MachineProfile = {
  name: "h200x8",
  machine: "8 x NVIDIA H200, NVSwitch",
  topology: "h200x8",
  nccl: "2.28.9",
  date: "2026-11-22",
  commit: "6eb59a0",
  sources: [
    "nccl-tests-h200x8.txt",
    "odd-sizes-h200x4.json",
    "gpu-h200x2.json",
    "gpu-h200x4.json",
    "gpu-h200x8.json",
  ],
  mode: {
    launch: "graph",
    memory: "registered",
    processes: "each",
    awaited: false,
  },
  measured: {
    allReduce: {
      modes: {
        "recorded, registered memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, symmetric memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, symmetric memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, symmetric memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, symmetric memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, awaited": { ranks: [2, 8], bytes: [1024, 1024] },
        "call by call, ordinary memory, one process, awaited": {
          ranks: [2, 8],
          bytes: [1024, 1024],
        },
        "recorded, ordinary memory, awaited": { ranks: [2, 8], bytes: [1024, 1024] },
        "recorded, ordinary memory, one process, awaited": { ranks: [2, 8], bytes: [1024, 1024] },
        "call by call, symmetric memory, awaited": { ranks: [2, 8], bytes: [1024, 1024] },
        "call by call, symmetric memory, one process, awaited": {
          ranks: [2, 8],
          bytes: [1024, 1024],
        },
        "recorded, symmetric memory, awaited": { ranks: [2, 8], bytes: [1024, 1024] },
        "recorded, symmetric memory, one process, awaited": { ranks: [2, 8], bytes: [1024, 1024] },
      },
      choices: {
        "Ring LL": { ranks: [2, 8], bytes: [8, 134217728] },
        "Ring LL128": { ranks: [2, 8], bytes: [8, 134217728] },
        "Ring Simple": { ranks: [2, 8], bytes: [8, 536870912] },
        "Tree LL": { ranks: [2, 8], bytes: [8, 134217728] },
        "Tree LL128": { ranks: [2, 8], bytes: [8, 134217728] },
        "Tree Simple": { ranks: [2, 8], bytes: [8, 134217728] },
        "Symmetric LL": { ranks: [2, 8], bytes: [8, 104975] },
        "Symmetric LD": { ranks: [2, 8], bytes: [8193, 536870912] },
      },
      dtypes: ["float32"],
    },
    allGather: {
      modes: {
        "recorded, registered memory": { ranks: [2, 8], bytes: [32, 536870912] },
        "recorded, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, misaligned blocks": {
          ranks: [2, 4],
          bytes: [2834364, 229582544],
        },
        "recorded, symmetric memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, symmetric memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, symmetric memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, symmetric memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
      },
      choices: {
        "Ring LL": { ranks: [2, 8], bytes: [8, 8388607] },
        "Ring LL128": { ranks: [8, 8], bytes: [2097153, 33554431] },
        "Ring Simple": { ranks: [2, 8], bytes: [944797, 536870912] },
        "Symmetric LL": { ranks: [2, 8], bytes: [8, 524287] },
        "Symmetric LD": { ranks: [2, 8], bytes: [32769, 536870912] },
      },
      dtypes: ["float32"],
    },
    reduceScatter: {
      modes: {
        "recorded, registered memory": { ranks: [2, 8], bytes: [32, 536870912] },
        "recorded, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, misaligned blocks": {
          ranks: [2, 4],
          bytes: [2834364, 229582544],
        },
        "recorded, symmetric memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, symmetric memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, symmetric memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, symmetric memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
      },
      choices: {
        "Ring LL": { ranks: [2, 8], bytes: [8, 8388607] },
        "Ring LL128": { ranks: [8, 8], bytes: [2097153, 33554431] },
        "Ring Simple": { ranks: [2, 8], bytes: [944797, 536870912] },
        "Symmetric LL": { ranks: [2, 8], bytes: [8, 524287] },
        "Symmetric LD": { ranks: [2, 8], bytes: [32769, 536870912] },
      },
      dtypes: ["float32"],
    },
    allToAll: {
      modes: {
        "recorded, registered memory": { ranks: [2, 8], bytes: [32, 536870912] },
        "recorded, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, misaligned blocks": {
          ranks: [2, 4],
          bytes: [2834364, 229582544],
        },
        "call by call, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
      },
      choices: {
        messages: { ranks: [2, 8], bytes: [8, 536870912] },
      },
      dtypes: ["float32"],
    },
    broadcast: {
      modes: {
        "recorded, registered memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
      },
      choices: {
        "Ring LL": { ranks: [2, 8], bytes: [8, 2834351] },
        "Ring Simple": { ranks: [2, 8], bytes: [524289, 536870912] },
      },
      dtypes: ["float32"],
    },
    reduce: {
      modes: {
        "recorded, ordinary memory": { ranks: [2, 4], bytes: [48, 229582512] },
      },
      choices: {
        "Ring LL": { ranks: [2, 4], bytes: [48, 2834351] },
        "Ring Simple": { ranks: [2, 4], bytes: [944785, 229582512] },
      },
      dtypes: ["float32"],
    },
    allToAllv: {
      modes: {
        "call by call, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "call by call, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory": { ranks: [2, 8], bytes: [8, 536870912] },
        "recorded, ordinary memory, one process": { ranks: [2, 8], bytes: [8, 536870912] },
      },
      choices: {
        messages: { ranks: [2, 8], bytes: [8, 536870912] },
      },
      dtypes: ["float32"],
    },
  },
  numbers: {
    elementRate: 14.96,
    ring: {
      LL: {
        startUs: 4.4,
        channelUs: 0.02864,
        hopUs: 0.5583,
        chunkUs: 0.3589,
        hopRate: 6.888,
        ownRate: 14.21,
        firstRate: 22.51,
        passUs: 0.2764,
      },
      LL128: {
        startUs: 9.785,
        channelUs: 0.0727,
        hopUs: 1.033,
        chunkUs: 1.331,
        hopRate: 14.05,
        ownRate: 21.32,
      },
      Simple: {
        startUs: 11.49,
        channelUs: 0.1585,
        hopUs: 2.973,
        chunkUs: 0.8875,
        hopRate: 15.4,
        ownRate: 33.55,
      },
    },
    tree: {
      LL: {
        startUs: 4.948,
        hopUs: 0.7811,
        chunkRate: 25.45,
      },
      LL128: {
        hopUs: 1.058,
        rate: 6.238,
      },
      Simple: {
        hopUs: 3.436,
        chunkRate: 33.76,
      },
      pairGain: 1.618,
    },
    chain: {
      passShare: 0.492,
    },
    operator: {
      startUs: 0.5,
      threadNs: 2.7,
    },
    registered: {
      ownRate: 83.83,
      chunkRate: 41.97,
    },
    exchange: {
      startUs: 6.291,
      firstRate: 8.666,
      lowRate: 4.317,
      messageRate: 19.07,
      ownGain: 2.832,
      portRate: 321.4,
    },
    symmetric: {
      low: {
        startUs: 3.62,
        rankPs: 79.25,
        passUs: 1.276,
      },
      loadUs: 0.846,
      allReduce: {
        startUs: 6.734,
        peerPs: 31.58,
      },
      reduceScatter: {
        startUs: 5.659,
        peerPs: 16.1,
      },
      allGather: {
        startUs: 6.53,
        storePs: 19.5,
        crowdPs: 0.2247,
        remotePs: 29,
        wordUs: 0.204,
      },
    },
    host: {
      callUs: 8.906,
      rankUs: 0.3614,
      messageUs: 0.7656,
      sharedUs: 7.741,
      sharedGraphUs: 1.474,
    },
    awaited: {
      eagerUs: 10.69,
      graphUs: 5.109,
      rankUs: 0.37,
      sharedEagerUs: 7.918,
      sharedGraphUs: 5.09,
      programUs: 1.315,
    },
  },
};
