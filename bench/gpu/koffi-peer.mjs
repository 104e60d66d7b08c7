// The native loop in JavaScript: NCCL through koffi and nothing else, one process a rank. What it takes longer than the one
// in C++ is the foreign calls'; nothing that runs in Node.js can be faster. The protocol is that of bench/native/call.hpp.
//   node koffi-peer.mjs SIZE MAX_BYTES RANK ID_FILE
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import koffi from "koffi";

const [size, maxBytes, rank] = process.argv.slice(2, 5).map(Number);
const idFile = process.argv[5];
const float = 7;
const [sumOp, symmetricWindow, nonBlocking] = [0, 1, 1];
const [toDevice, toHost] = [1, 2];
const threadLocal = 1;

const nccl = koffi.load(process.env.TWINCCL_NCCL_LIBRARY ?? "libnccl.so.2");
const cuda = koffi.load(process.env.TWINCCL_CUDART_LIBRARY ?? "libcudart.so");
koffi.struct("UniqueId", { bytes: koffi.array("uint8_t", 128, "Typed") });

/** A function with integers for pointers; its result is checked where no call is timed. */
const raw = (library, name, ...types) => library.func(name, "int", types);
const checked = (library, name, ...types) => {
  const call = raw(library, name, ...types);
  return (...args) => {
    const status = call(...args);
    if (status !== 0) throw new Error(`${name}: status ${status}`);
  };
};
const ptr = "uintptr_t";
const out = "_Out_ uintptr_t *";

const setDevice = checked(cuda, "cudaSetDevice", "int");
const malloc = checked(cuda, "cudaMalloc", out, "size_t");
const memset = checked(cuda, "cudaMemsetAsync", ptr, "int", "size_t", ptr);
const copyOut = checked(cuda, "cudaMemcpyAsync", "_Out_ uint8_t *", ptr, "size_t", "int", ptr);
const copyIn = checked(cuda, "cudaMemcpyAsync", ptr, "const void *", "size_t", "int", ptr);
const streamCreate = checked(cuda, "cudaStreamCreateWithFlags", out, "uint");
const beginCapture = checked(cuda, "cudaStreamBeginCapture", ptr, "int");
const endCapture = checked(cuda, "cudaStreamEndCapture", ptr, out);
const graphDestroy = checked(cuda, "cudaGraphDestroy", ptr);
const synchronize = checked(cuda, "cudaStreamSynchronize", ptr);
const getId = checked(nccl, "ncclGetUniqueId", "_Out_ UniqueId *");
const initRank = checked(nccl, "ncclCommInitRank", out, "int", "UniqueId", "int");
const memAlloc = checked(nccl, "ncclMemAlloc", out, "size_t");
const destroy = checked(nccl, "ncclCommDestroy", ptr);

const allReduce = raw(nccl, "ncclAllReduce", ptr, ptr, "size_t", "int", "int", ptr, ptr);
const broadcast = raw(nccl, "ncclBroadcast", ptr, ptr, "size_t", "int", "int", ptr, ptr);
const allGather = raw(nccl, "ncclAllGather", ptr, ptr, "size_t", "int", ptr, ptr);
const reduceScatter = raw(nccl, "ncclReduceScatter", ptr, ptr, "size_t", "int", "int", ptr, ptr);
const send = raw(nccl, "ncclSend", ptr, "size_t", "int", "int", ptr, ptr);
const recv = raw(nccl, "ncclRecv", ptr, "size_t", "int", "int", ptr, ptr);
const groupStart = raw(nccl, "ncclGroupStart");
const groupEnd = raw(nccl, "ncclGroupEnd");

const made = (make, ...rest) => {
  const slot = [0n];
  make(slot, ...rest);
  return BigInt(slot[0]);
};

/** The job's id: rank 0 writes it. */
async function uniqueId() {
  if (rank === 0) {
    const id = {};
    getId(id);
    writeFileSync(`${idFile}.new`, id.bytes);
    renameSync(`${idFile}.new`, idFile);
  }
  while (!existsSync(idFile)) await pause(5);
  return { bytes: new Uint8Array(readFileSync(idFile)) };
}

setDevice(rank);
const comm = made(initRank, size, await uniqueId(), rank);
const stream = made(streamCreate, nonBlocking);

function zeros(make) {
  const address = made(make, maxBytes);
  memset(address, 0, maxBytes, stream);
  return address;
}

const plain = { a: zeros(malloc), b: zeros(malloc) };
const scratch = made(malloc, 256);
let symmetric;

/** Made on first use: registration is collective, so every process gets the same command. */
function windows() {
  if (symmetric !== undefined) return symmetric;
  const register = checked(nccl, "ncclCommWindowRegister", ptr, ptr, "size_t", out, "int");
  symmetric = { a: zeros(memAlloc), b: zeros(memAlloc) };
  for (const address of [symmetric.a, symmetric.b])
    register(comm, address, maxBytes, [0n], symmetricWindow);
  return symmetric;
}

/** No rank leaves it before every rank has entered it. */
function barrier() {
  allReduce(scratch, scratch, 1, float, sumOp, comm, stream);
  synchronize(stream);
}

/** Sends and receives of a rank, pairwise: blocks without elements are left out. */
function exchangeOf(a, b, traffic) {
  const row = (at) => traffic.slice(at * size, (at + 1) * size);
  const starts = (counts) => counts.map((_, at) => counts.slice(0, at).reduce((x, y) => x + y, 0));
  const sent = row(rank);
  const received = Array.from({ length: size }, (_, from) => row(from)[rank]);
  const [sendAt, recvAt] = [starts(sent), starts(received)];
  const messages = Array.from({ length: size }, (_, step) => {
    const [to, from] = [(rank + step) % size, (rank - step + size) % size];
    return [
      { call: send, address: a + BigInt(4 * sendAt[to]), count: sent[to], peer: to },
      { call: recv, address: b + BigInt(4 * recvAt[from]), count: received[from], peer: from },
    ];
  });
  const some = messages.flat().filter(({ count }) => count > 0);
  return () => {
    groupStart();
    for (const { call, address, count, peer } of some)
      call(address, count, float, peer, comm, stream);
    groupEnd();
  };
}

function callOf(collective, count, { a, b }, traffic) {
  switch (collective) {
    case "allReduce":
      return () => allReduce(a, a, count, float, sumOp, comm, stream);
    case "broadcast":
      return () => broadcast(a, a, count, float, 0, comm, stream);
    case "allGather":
      return () => allGather(a, b, count, float, comm, stream);
    case "reduceScatter":
      return () => reduceScatter(a, b, count, float, sumOp, comm, stream);
    case "allToAll": {
      const allToAll = raw(nccl, "ncclAlltoAll", ptr, ptr, "size_t", "int", ptr, ptr);
      return () => allToAll(a, b, count, float, comm, stream);
    }
    case "allToAllv":
      return exchangeOf(a, b, traffic);
    default:
      throw new Error(`no such collective: ${collective}`);
  }
}

function measure(call, iterations, warmup) {
  for (let at = 0; at < warmup; at++) call();
  synchronize(stream);
  barrier();
  const began = performance.now();
  for (let at = 0; at < iterations; at++) call();
  const issued = performance.now();
  synchronize(stream);
  const perCall = (ended) => (1000 * (ended - began)) / iterations;
  return { wall_us: perCall(performance.now()), issue_us: perCall(issued) };
}

/** Ones in, one call, and the first element must be the number of contributions. */
function isRight(collective, call, { a, b }, count) {
  const inPlace = collective === "allReduce" || collective === "broadcast";
  const ones = new Uint8Array(new Float32Array(Math.max(1, count * size)).fill(1).buffer);
  const nothing = collective === "broadcast" && rank !== 0;
  if (!nothing) copyIn(a, ones, ones.byteLength, toDevice, stream);
  call();
  synchronize(stream);
  const found = new Uint8Array(4);
  copyOut(found, inPlace ? a : b, 4, toHost, stream);
  memset(a, 0, ones.byteLength, stream);
  synchronize(stream);
  const sums = collective === "allReduce" || collective === "reduceScatter";
  return new Float32Array(found.buffer)[0] === (sums ? size : 1);
}

function answerTo(line) {
  const [verb, collective, ...numbers] = line.split(" ");
  const [graphCalls, isSymmetric, count, iterations, warmup, check, ...traffic] =
    numbers.map(Number);
  if (verb !== "measure" || graphCalls > 0 || count * 4 >= 2 ** 20) {
    return { error: "only what small calls take that are made one by one" };
  }
  const buffers = isSymmetric === 1 ? windows() : plain;
  const call = callOf(collective, count, buffers, traffic);
  const times = measure(call, iterations, warmup);
  const counted = check === 1 && collective !== "allToAllv";
  return { ...times, right: counted ? isRight(collective, call, buffers, count) : null };
}

/** Once a call was captured NCCL has more to do for every later one: the other peers capture, so this one does. */
function captureOnce() {
  beginCapture(stream, threadLocal);
  allReduce(scratch, scratch, 1, float, sumOp, comm, stream);
  const graph = [0n];
  endCapture(stream, graph);
  graphDestroy(graph[0]);
}

const say = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);
barrier();
captureOnce();
say({ hello: "koffi", version: koffi.version });
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "quit") break;
  try {
    say(answerTo(line));
  } catch (error) {
    say({ error: String(error?.message ?? error) });
  }
}
synchronize(stream);
destroy(comm);
