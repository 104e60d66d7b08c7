/** The profile of eight H200, written by `npm run profile:fit`; docs/design/nccl-times.md has the meaning of every number. */
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
    "misaligned-symmetric-h200x2.json",
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
    elementRate: 14.75,
    ring: {
      LL: {
        startUs: 4.398,
        channelUs: 0.0286,
        hopUs: 0.5581,
        chunkUs: 0.3605,
        hopRate: 6.891,
        ownRate: 14.23,
        firstRate: 22.7,
        passUs: 0.2766,
      },
      LL128: {
        startUs: 9.785,
        channelUs: 0.07269,
        hopUs: 1.033,
        chunkUs: 1.331,
        hopRate: 14.05,
        ownRate: 21.32,
      },
      Simple: {
        startUs: 11.51,
        channelUs: 0.1525,
        hopUs: 2.965,
        chunkUs: 0.8852,
        hopRate: 15.4,
        ownRate: 32.53,
        singleRate: 19.72,
      },
    },
    tree: {
      LL: {
        startUs: 4.947,
        hopUs: 0.7811,
        chunkRate: 25.42,
      },
      LL128: {
        hopUs: 1.058,
        rate: 6.239,
      },
      Simple: {
        hopUs: 3.434,
        chunkRate: 33.59,
      },
      pairGain: 1.618,
    },
    chain: {
      passShare: 0.4982,
    },
    operator: {
      startUs: 0.5,
      threadNs: 2.7,
    },
    registered: {
      ownRate: 82.84,
      chunkRate: 41.71,
    },
    exchange: {
      startUs: 6.29,
      firstRate: 6.234,
      lowRate: 4.465,
      messageRate: 19.18,
      portRate: 322,
    },
    symmetric: {
      low: {
        startUs: 3.62,
        rankPs: 79.25,
        passUs: 1.276,
      },
      loadUs: 0.8979,
      missUs: 0.2001,
      allReduce: {
        startUs: 6.572,
        peerPs: 30.41,
      },
      reduceScatter: {
        startUs: 5.847,
        peerPs: 12.83,
      },
      allGather: {
        startUs: 6.496,
        storePs: 19.53,
        crowdPs: 0.2241,
        remotePs: 29,
        wordUs: 0.2267,
      },
    },
    host: {
      callUs: 8.912,
      rankUs: 0.3601,
      messageUs: 0.7675,
      sharedUs: 7.74,
      sharedGraphUs: 1.474,
    },
    awaited: {
      eagerUs: 10.69,
      graphUs: 5.11,
      rankUs: 0.3697,
      sharedEagerUs: 7.918,
      sharedGraphUs: 5.09,
      programUs: 1.315,
    },
  },
};
