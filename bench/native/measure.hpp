// Times calls as nccl-tests does: warm up, meet, issue all of them back to back, wait once.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "call.hpp"

inline double nowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The same calls on every rank's stream, recorded once; one graph a rank.
class Graphs {
 public:
  Graphs(Peer& peer, const Command& c) : peer_(peer) {
    for (Rank& rank : peer.ranks) CHECK(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    for (int call = 0; call < c.graphCalls; call++) issue(peer, c);
    // All captures end before the first graph is instantiated, which CUDA refuses while a stream captures.
    std::vector<cudaGraph_t> graphs(peer.ranks.size());
    for (size_t at = 0; at < graphs.size(); at++) {
      CHECK(cudaSetDevice(peer.ranks[at].device));
      CHECK(cudaStreamEndCapture(peer.ranks[at].stream, &graphs[at]));
    }
    for (size_t at = 0; at < graphs.size(); at++) {
      cudaGraph_t graph = graphs[at];
      cudaGraphExec_t exec;
      CHECK(cudaSetDevice(peer.ranks[at].device));
      CHECK(cudaGraphInstantiate(&exec, graph, 0));
      CHECK(cudaGraphDestroy(graph));
      execs_.push_back(exec);
    }
  }
  Graphs(const Graphs&) = delete;
  ~Graphs() {
    for (cudaGraphExec_t exec : execs_) cudaGraphExecDestroy(exec);
  }
  void launch() {
    for (size_t at = 0; at < execs_.size(); at++) CHECK(cudaGraphLaunch(execs_[at], peer_.ranks[at].stream));
  }

 private:
  Peer& peer_;
  std::vector<cudaGraphExec_t> execs_;
};

struct Times {
  double wallUs = 0;
  double eventUs = 0;
};

// Microseconds of one call: on this process's clock, and on the slowest device's.
inline Times measure(Peer& peer, const Command& c) {
  for (int call = 0; call < c.warmup; call++) issue(peer, c);
  peer.synchronize();
  int launches = c.graphCalls > 0 ? c.iterations / c.graphCalls : 0;
  std::optional<Graphs> graphs;
  if (launches > 0) graphs.emplace(peer, c).launch();
  peer.barrier();
  double began = nowUs();
  for (Rank& rank : peer.ranks) {
    CHECK(cudaSetDevice(rank.device));
    CHECK(cudaEventRecord(rank.begin, rank.stream));
  }
  if (graphs) {
    for (int launch = 0; launch < launches; launch++) graphs->launch();
  } else {
    for (int call = 0; call < c.iterations; call++) issue(peer, c);
  }
  for (Rank& rank : peer.ranks) {
    CHECK(cudaSetDevice(rank.device));
    CHECK(cudaEventRecord(rank.end, rank.stream));
  }
  peer.synchronize();
  Times times;
  times.wallUs = (nowUs() - began) / c.iterations;
  for (Rank& rank : peer.ranks) {
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, rank.begin, rank.end));
    times.eventUs = std::max(times.eventUs, 1000.0 * ms / c.iterations);
  }
  return times;
}

struct Latency {
  double medianUs = 0;
  double p99Us = 0;
};

// Each call alone: from issuing it until its result is there.
inline Latency latency(Peer& peer, const Command& c) {
  std::vector<double> samples;
  Command one = c;
  one.graphCalls = std::min(c.graphCalls, 1);
  issue(peer, one);
  peer.synchronize();
  std::optional<Graphs> graphs;
  if (one.graphCalls > 0) graphs.emplace(peer, one);
  peer.barrier();
  for (int call = -c.warmup; call < c.iterations; call++) {
    double began = nowUs();
    if (graphs) graphs->launch();
    else issue(peer, one);
    peer.synchronize();
    if (call >= 0) samples.push_back(nowUs() - began);
  }
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[static_cast<size_t>(0.99 * (samples.size() - 1))]};
}

inline void fill(float* target, float value, size_t count, cudaStream_t stream) {
  if (count == 0) return;
  CHECK(cudaMemcpyAsync(target, &value, sizeof value, cudaMemcpyHostToDevice, stream));
  for (size_t done = 1; done < count; done *= 2) {
    size_t bytes = std::min(done, count - done) * sizeof value;
    CHECK(cudaMemcpyAsync(target + done, target, bytes, cudaMemcpyDeviceToDevice, stream));
  }
}

// Ones in, one call, and the first, middle and last element of every result must be the number of contributions.
inline bool isRight(Peer& peer, const Command& c) {
  size_t length = peer.maxBytes / sizeof(float);
  for (Rank& rank : peer.ranks) {
    const Buffers& buffers = c.symmetric ? rank.symmetric : rank.plain;
    CHECK(cudaSetDevice(rank.device));
    fill(buffers.a, c.collective == "broadcast" && rank.rank != 0 ? 0.0f : 1.0f, length, rank.stream);
    CHECK(cudaMemsetAsync(buffers.b, 0, peer.maxBytes, rank.stream));
  }
  issue(peer, c);
  peer.synchronize();
  bool isFolded = c.collective == "allReduce" || c.collective == "reduceScatter";
  bool right = true;
  for (Rank& rank : peer.ranks) {
    const Buffers& buffers = c.symmetric ? rank.symmetric : rank.plain;
    const float* result = isInPlace(c) ? buffers.a : buffers.b;
    size_t count = resultLength(c, rank.rank, peer.size);
    CHECK(cudaSetDevice(rank.device));
    for (size_t at : {size_t(0), count / 2, count - 1}) {
      float found = 0;
      if (count > 0) CHECK(cudaMemcpy(&found, result + at, sizeof found, cudaMemcpyDeviceToHost));
      right = right && (count == 0 || found == (isFolded ? float(peer.size) : 1.0f));
    }
    // Zeros again, so that no repeated sum ever grows.
    CHECK(cudaMemsetAsync(buffers.a, 0, peer.maxBytes, rank.stream));
  }
  peer.synchronize();
  return right;
}
