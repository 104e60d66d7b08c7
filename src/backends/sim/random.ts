/**
 * Random choices that a seed fixes for ever: every choice is keyed by what it is for, never drawn from a shared stream,
 * so that leaving one out does not shift the others.
 */
import { mix32 } from "../../api/bits.ts";

/** Purposes that random choices are keyed by. */
export const purpose = { start: 1, wake: 2, resume: 3 } as const;

/** 32 random bits for a key; every bit of a safe integer counts. */
function randomBits(seed: number, ...key: readonly number[]): number {
  let state = mix32(seed ^ 0x9e3779b9);
  const high = Math.floor(seed / 2 ** 32);
  // Seeds of 32 bits, which is what people write, keep the runs they have.
  if (high !== 0) state = mix32(state ^ Math.imul(high + 0x5bd1e995, 0xc2b2ae35));
  for (const part of key) state = mix32(state ^ Math.imul(part + 0x6b43a9b5, 0x85ebca6b));
  return state;
}

/** An integer in 0..count-1 for a key; each is about equally likely. */
export function randomBelow(count: number, seed: number, ...key: readonly number[]): number {
  return randomBits(seed, ...key) % count;
}

/** A permutation of 0..size-1 for a key; every permutation is about equally likely. */
export function randomOrder(size: number, seed: number, ...key: readonly number[]): number[] {
  // Runs at every call: a loop, because `Array.from` with a function takes ten times as long.
  const order: number[] = [];
  for (let index = 0; index < size; index++) order.push(index);
  let state = randomBits(seed, ...key);
  for (let last = size - 1; last > 0; last--) {
    state = mix32(state + 0x9e3779b9);
    const pick = state % (last + 1);
    const moved = order[last] as number;
    order[last] = order[pick] as number;
    order[pick] = moved;
  }
  return order;
}
