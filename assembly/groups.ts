/**
 * A list of groups of folds, and the bytes of it that one thread does.
 *
 * All groups' bytes are counted through; a slice is a range of that count, so that any number of threads can share a list.
 * A group is a header of five words (its length in words, in bytes, its folds, bytes of a block or 0, bytes of a table)
 * and its folds. A fold is six words (kernel or -1 for a copy, operands, targets, flags, divisor, address of a mask),
 * its operands as a chain reads them, and the addresses of its targets.
 *
 * Where folds need each other's results, or are joined by position, a group goes block by block: each fold leaves its
 * block in the scratch memory of the thread. Such an operand has a fold's number for an address.
 */
import { fused, operandBytes, product } from "./chain";
import { runKernel } from "./kernels";

const groupHeader: usize = 20;
const foldHeader: usize = 24;
/** Flags of a fold. */
const isFinal: i32 = 1;
const isJoined: i32 = 2;
/** Beside how an operand meets the value: it is the block of a fold. */
const isBlock: i32 = 4;
/** Scratch memory begins with room for an incomplete unit. */
const spareBytes: usize = 64;
/** Slices meet at multiples of this, counted from the start of a group. */
const sliceAlignment: usize = 64;

/** Does bytes `from` to `to` of a list of `count` groups. */
export function runSlice(list: usize, count: i32, from: f64, to: f64, scratch: usize): void {
  const first = <u64>from;
  const last = <u64>to;
  let start: u64 = 0;
  let group = list;
  for (let i = 0; i < count; i++) {
    const bytes = <u64>load<u32>(group, 4);
    if (start >= last) return;
    if (start + bytes > first) {
      const begin: usize = first <= start ? 0 : aligned(<usize>(first - start));
      const end: usize = last >= start + bytes ? <usize>bytes : aligned(<usize>(last - start));
      if (begin < end) runGroup(group, begin, end, scratch);
    }
    start += bytes;
    group += (<usize>load<u32>(group)) << 2;
  }
}

@inline
function aligned(bytes: usize): usize {
  return bytes & ~(sliceAlignment - 1);
}

function runGroup(group: usize, begin: usize, end: usize, scratch: usize): void {
  const block = <usize>load<u32>(group, 12);
  if (block == 0) return runFold(group + groupHeader, begin, end, scratch);
  for (let at = begin; at < end; at += block) {
    runBlock(group, at, min(block, end - at), scratch);
  }
}

/** A fold that stands alone, without blocks. */
function runFold(fold: usize, begin: usize, end: usize, scratch: usize): void {
  const kernel = load<i32>(fold);
  const k = load<i32>(fold, 4);
  const t = load<i32>(fold, 8);
  const operands = fold + foldHeader;
  const targets = operands + <usize>k * operandBytes;
  if (kernel >= 0) {
    const final = (load<i32>(fold, 12) & isFinal) != 0;
    runKernel(kernel, operands, k, targets, t, begin, end, final, load<i32>(fold, 16), scratch);
    return;
  }
  const source = <usize>load<u32>(operands) + begin;
  for (let i = 0; i < t; i++) {
    const target = <usize>load<u32>(targets + ((<usize>i) << 2)) + begin;
    if (target != source) memory.copy(target, source, end - begin);
  }
}

/** All folds of a group over one block. */
function runBlock(group: usize, at: usize, size: usize, scratch: usize): void {
  const folds = load<i32>(group, 8);
  const block = <usize>load<u32>(group, 12);
  const table = scratch + spareBytes;
  const values = table + <usize>load<u32>(group, 16);
  let fold = group + groupHeader;
  for (let number = 0; number < folds; number++) {
    const k = load<i32>(fold, 4);
    const t = load<i32>(fold, 8);
    const flags = load<i32>(fold, 12);
    const value = values + <usize>number * block;
    resolve(fold, at, table, values, block);
    const targets = table + <usize>k * operandBytes;
    // The block itself is the first target.
    store<u32>(targets, <u32>value);
    const joined = (flags & isJoined) != 0;
    run(fold, table, targets, joined ? 1 : t + 1, size, scratch);
    if (joined) {
      const other = values + <usize>folds * block;
      roundProducts(table, k);
      store<u32>(targets, <u32>other);
      run(fold, table, targets, 1, size, scratch);
      join(value, other, <usize>load<u32>(fold, 20), at, size);
      for (let i = 0; i < t; i++) {
        memory.copy(<usize>load<u32>(targets + 4 + ((<usize>i) << 2)), value, size);
      }
    }
    fold += foldHeader + <usize>k * operandBytes + ((<usize>t) << 2);
  }
}

/** Puts the operands and targets of a fold into the table with the addresses that they have in this block. */
function resolve(fold: usize, at: usize, table: usize, values: usize, block: usize): void {
  const k = load<i32>(fold, 4);
  const t = load<i32>(fold, 8);
  let from = fold + foldHeader;
  let to = table;
  for (let i = 0; i < k; i++, from += operandBytes, to += operandBytes) {
    const address = <usize>load<u32>(from);
    const how = load<i32>(from, 4);
    const inBlock = (how & isBlock) != 0;
    store<u32>(to, <u32>(inBlock ? values + address * block : address + at));
    store<i32>(to, how & ~isBlock, 4);
    store<u32>(to, load<u32>(from, 8), 8);
  }
  to += 4;
  for (let i = 0; i < t; i++, from += 4, to += 4) {
    store<u32>(to, load<u32>(from) + <u32>at);
  }
}

function run(fold: usize, table: usize, targets: usize, t: i32, size: usize, scratch: usize): void {
  const final = (load<i32>(fold, 12) & isFinal) != 0;
  const divisor = load<i32>(fold, 16);
  runKernel(load<i32>(fold), table, load<i32>(fold, 4), targets, t, 0, size, final, divisor, scratch);
}

/** The other way of rounding: no product is fused. */
function roundProducts(table: usize, k: i32): void {
  for (let i = 0; i < k; i++) {
    const operand = table + <usize>i * operandBytes;
    if (load<i32>(operand, 4) == fused) store<i32>(operand, product, 4);
  }
}

/** Bytes after which the mask repeats. */
const patternBytes: usize = 960;

/** Takes from `other` what the mask says; `at` is the place of the block in its chunk, a multiple of a vector. */
function join(value: usize, other: usize, mask: usize, at: usize, size: usize): void {
  let place = at % patternBytes;
  for (let i: usize = 0; i < size; i += 16) {
    const taken = v128.load(mask + place);
    v128.store(value + i, v128.bitselect(v128.load(other + i), v128.load(value + i), taken));
    place += 16;
    if (place == patternBytes) place = 0;
  }
}
