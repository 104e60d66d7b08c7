/** The profile of eight H200, written by `npm run profile:fit`; docs/predict.md has the meaning of every number. */
import type { MachineProfile } from "../profile.ts";

export const h200x8Profile: MachineProfile = {
  name: "h200x8",
  machine: "8 x NVIDIA H200, NVSwitch",
  topology: "h200x8",
  nccl: "2.28.9",
  date: "2026-11-22",
  commit: "6eb59a0",
  sources: ["nccl-tests-h200x8.txt", "gpu-h200x2.json", "gpu-h200x4.json", "gpu-h200x8.json"],
  mode: {
    launch: "graph",
    memory: "registered",
    processes: "each",
    awaited: false,
  },
  measured: {
    allReduce: {
      ranks: [2, 8],
      bytes: [8, 536870912],
    },
    allGather: {
      ranks: [2, 8],
      bytes: [8, 536870912],
    },
    reduceScatter: {
      ranks: [2, 8],
      bytes: [8, 536870912],
    },
    allToAll: {
      ranks: [2, 8],
      bytes: [8, 536870912],
    },
    broadcast: {
      ranks: [2, 8],
      bytes: [8, 536870912],
    },
    allToAllv: {
      ranks: [2, 8],
      bytes: [8, 536870912],
    },
  },
  numbers: {
    ring: {
      LL: {
        startUs: 4.42,
        channelUs: 0.02893,
        hopUs: 0.5545,
        chunkUs: 0.3614,
        hopRate: 6.717,
        passRate: 10.21,
        firstRate: 22.56,
        storeRate: 17.23,
      },
      LL128: {
        startUs: 9.894,
        channelUs: 0.06738,
        hopUs: 1.037,
        chunkUs: 1.084,
        hopRate: 15.6,
        passRate: 17.8,
      },
      Simple: {
        startUs: 11.66,
        channelUs: 0.09778,
        hopUs: 2.753,
        chunkUs: 0.977,
        hopRate: 15.87,
        passRate: 31.22,
      },
    },
    tree: {
      LL: {
        startUs: 4.903,
        hopUs: 0.7992,
        chunkRate: 39.35,
        rate: 3.178,
      },
      LL128: {
        startUs: 9.718,
        hopUs: 1.061,
        chunkRate: 209.9,
        rate: 5.591,
      },
      Simple: {
        startUs: 10.07,
        hopUs: 3.564,
        chunkRate: 34.17,
        rate: 7.554,
      },
      pairGain: 1.558,
    },
    chain: {
      passShare: 0.2349,
      startUs: 12.52,
      rate: 15.06,
    },
    registered: {
      passRate: 70.86,
      rate: 15.19,
      messageRate: 22,
      chunkRate: 57.58,
    },
    exchange: {
      lowStartUs: 6.363,
      lowRate: 9.458,
      startUs: 7.12,
      channelUs: 0.2499,
      messageRate: 18.15,
      misalignedRate: 7.054,
      portRate: 325.2,
    },
    symmetric: {
      low: {
        startUs: 3.518,
        ownPs: 240.6,
        peerPs: 61.91,
      },
      singlePs: 458.2,
      allReduce: {
        startUs: 8.669,
        ownPs: 6.435,
        peerPs: 46.78,
      },
      reduceScatter: {
        startUs: 7.088,
        ownPs: 15.48,
        peerPs: 28.14,
      },
      allGather: {
        startUs: 6.547,
        ownPs: 8.873,
        peerPs: 28.41,
      },
    },
    host: {
      callUs: 8.892,
      rankUs: 0.364,
      messageUs: 0.77,
      sharedUs: 7.741,
      sharedGraphUs: 1.475,
    },
    awaited: {
      eagerUs: 10.78,
      graphUs: 4.975,
      rankUs: 0.3831,
      sharedEagerUs: 7.29,
      sharedGraphUs: 4.757,
    },
  },
};
