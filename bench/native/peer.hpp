// One rank of the native loop: its communicator, stream and buffers. Every call that fails throws.
#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <stdexcept>
#include <string>
#include <vector>

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

inline void check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(status));
}

#define CHECK(call) check(call, #call)

// Two buffers of the largest size, plain or in symmetric windows.
struct Buffers {
  float* a = nullptr;
  float* b = nullptr;
};

struct Rank {
  int rank = 0;
  int device = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  float* scratch = nullptr;
  Buffers plain;
  Buffers symmetric;
};

// The ranks that this process drives: one, or all of them.
struct Peer {
  int size = 0;
  size_t maxBytes = 0;
  std::vector<Rank> ranks;
  bool hasWindows = false;

  void synchronize() {
    for (Rank& rank : ranks) CHECK(cudaStreamSynchronize(rank.stream));
  }

  // No rank leaves it before every rank has entered it.
  void barrier() {
    CHECK(ncclGroupStart());
    for (Rank& rank : ranks) {
      CHECK(ncclAllReduce(rank.scratch, rank.scratch, 1, ncclFloat, ncclSum, rank.comm, rank.stream));
    }
    CHECK(ncclGroupEnd());
    synchronize();
  }

  // Made on first use: registration is collective, so every process gets the same command.
  void makeWindows() {
    if (hasWindows) return;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    for (Rank& rank : ranks) {
      CHECK(cudaSetDevice(rank.device));
      for (float** buffer : {&rank.symmetric.a, &rank.symmetric.b}) {
        CHECK(ncclMemAlloc(reinterpret_cast<void**>(buffer), maxBytes));
        CHECK(cudaMemset(*buffer, 0, maxBytes));
      }
    }
    for (float* Buffers::* which : {&Buffers::a, &Buffers::b}) {
      // NCCL writes the windows when the group ends, so they outlive this loop.
      std::vector<ncclWindow_t> windows(ranks.size());
      CHECK(ncclGroupStart());
      for (size_t at = 0; at < ranks.size(); at++) {
        Rank& rank = ranks[at];
        CHECK(ncclCommWindowRegister(rank.comm, rank.symmetric.*which, maxBytes, &windows[at],
                                     NCCL_WIN_COLL_SYMMETRIC));
      }
      CHECK(ncclGroupEnd());
    }
    hasWindows = true;
#else
    throw std::runtime_error("symmetric windows need NCCL 2.27");
#endif
  }
};
