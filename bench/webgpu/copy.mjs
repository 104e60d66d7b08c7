// How fast the device copies one buffer to another: the most that a fold, which only reads and writes, could reach.

const usage = 4 | 8 | 0x80;
/** Copies in one submit: enough that the way to the device and back does not count. */
const copies = 20;

/** The best of `rounds` measurements; bytes count twice, read and written. */
export async function copyBandwidth(device, bytes, rounds) {
  const make = () => device.createBuffer({ size: bytes, usage });
  const pairs = [make(), make(), make(), make()];
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round <= rounds; round++) {
    const encoder = device.createCommandEncoder();
    for (let i = 0; i < copies; i++) {
      encoder.copyBufferToBuffer(pairs[2 * (i % 2)], 0, pairs[2 * (i % 2) + 1], 0, bytes);
    }
    await device.queue.onSubmittedWorkDone();
    const began = performance.now();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    // The first round makes the memory resident.
    if (round > 0) best = Math.min(best, performance.now() - began);
  }
  for (const buffer of pairs) buffer.destroy();
  const milliseconds = best / copies;
  return { milliseconds, gigabytesPerSecond: (2 * bytes) / milliseconds / 1e6 };
}
