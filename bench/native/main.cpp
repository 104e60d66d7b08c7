// The native loop over NCCL that twinccl is measured against. It reads commands from standard input, a line each, and
// answers each with a line of JSON.
//
//   nccl-loop one SIZE MAX_BYTES               one process drives all GPUs, a group a call
//   nccl-loop rank SIZE MAX_BYTES RANK IDFILE  one process per GPU; they meet at IDFILE
//
//   measure allReduce 0 0 256 100 20 1         eager, plain buffers, 256 elements, 100 timed calls, 20 before, checked
//   measure allReduce 20 1 256 100 20 0        20 calls in each CUDA graph, symmetric windows
//   latency allReduce 0 0 256 500 100 0        each call alone
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

#include "measure.hpp"

static ncclUniqueId uniqueId(int rank, const std::string& path) {
  ncclUniqueId id;
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    if (std::rename((path + ".new").c_str(), path.c_str()) != 0) throw std::runtime_error("cannot write " + path);
    return id;
  }
  for (int attempt = 0; attempt < 6000; attempt++) {
    std::ifstream file(path, std::ios::binary);
    if (file.read(id.internal, sizeof id.internal)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw std::runtime_error("rank 0 wrote no unique id to " + path);
}

static Rank openRank(int rank, int device, size_t maxBytes) {
  Rank opened;
  opened.rank = rank;
  opened.device = device;
  CHECK(cudaSetDevice(device));
  CHECK(cudaStreamCreateWithFlags(&opened.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&opened.begin));
  CHECK(cudaEventCreate(&opened.end));
  CHECK(cudaMalloc(&opened.scratch, 256));
  CHECK(cudaMemset(opened.scratch, 0, 256));
  for (float** buffer : {&opened.plain.a, &opened.plain.b}) {
    CHECK(cudaMalloc(buffer, maxBytes));
    CHECK(cudaMemset(*buffer, 0, maxBytes));
  }
  CHECK(cudaDeviceSynchronize());
  return opened;
}

static Peer open(int argc, char** argv) {
  std::string how = argc > 1 ? argv[1] : "";
  if (!(how == "one" && argc == 4) && !(how == "rank" && argc == 6)) {
    throw std::runtime_error("usage: nccl-loop one SIZE MAX_BYTES | rank SIZE MAX_BYTES RANK IDFILE");
  }
  Peer peer;
  peer.size = std::atoi(argv[2]);
  peer.maxBytes = std::strtoull(argv[3], nullptr, 10);
  if (how == "rank") {
    int rank = std::atoi(argv[4]);
    ncclUniqueId id = uniqueId(rank, argv[5]);
    peer.ranks.push_back(openRank(rank, rank, peer.maxBytes));
    CHECK(ncclCommInitRank(&peer.ranks[0].comm, peer.size, id, rank));
  } else {
    std::vector<ncclComm_t> comms(peer.size);
    CHECK(ncclCommInitAll(comms.data(), peer.size, nullptr));
    for (int rank = 0; rank < peer.size; rank++) {
      peer.ranks.push_back(openRank(rank, rank, peer.maxBytes));
      peer.ranks.back().comm = comms[rank];
    }
  }
  peer.barrier();
  return peer;
}

static void hello() {
  int nccl = 0, runtime = 0;
  CHECK(ncclGetVersion(&nccl));
  CHECK(cudaRuntimeGetVersion(&runtime));
  Dl_info info;
  bool found = dladdr(reinterpret_cast<void*>(&ncclGetVersion), &info) != 0;
  std::printf("{\"hello\":\"native\",\"nccl\":%d,\"cudart\":%d,\"library\":\"%s\"}\n", nccl, runtime,
              found ? info.dli_fname : "unknown");
}

static void answer(Peer& peer, const std::string& line) {
  Command c = readCommand(line);
  if (c.symmetric) peer.makeWindows();
  if (c.verb == "latency") {
    Latency found = latency(peer, c);
    std::printf("{\"median_us\":%.3f,\"p99_us\":%.3f}\n", found.medianUs, found.p99Us);
    return;
  }
  Times times = measure(peer, c);
  const char* right = !c.check ? "null" : isRight(peer, c) ? "true" : "false";
  std::printf("{\"wall_us\":%.3f,\"event_us\":%.3f,\"right\":%s}\n", times.wallUs, times.eventUs, right);
}

static std::string quoted(const char* text) {
  std::string out;
  for (const char* at = text; *at != 0; at++) out += *at == '"' || *at == '\\' || *at < ' ' ? ' ' : *at;
  return out;
}

int main(int argc, char** argv) {
  // In-switch reduction stays off in every process that is compared here.
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  try {
    Peer peer = open(argc, argv);
    hello();
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "quit") break;
      try {
        answer(peer, line);
      } catch (const std::exception& error) {
        std::printf("{\"error\":\"%s\"}\n", quoted(error.what()).c_str());
      }
    }
    CHECK(ncclGroupStart());
    for (Rank& rank : peer.ranks) CHECK(ncclCommDestroy(rank.comm));
    CHECK(ncclGroupEnd());
    return 0;
  } catch (const std::exception& error) {
    std::printf("{\"error\":\"%s\"}\n", quoted(error.what()).c_str());
    return 1;
  }
}
