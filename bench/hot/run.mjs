// Runs one hot path and prints its figures as a line of JSON: node bench/hot/run.mjs NAME SECONDS
import { paths } from "./paths.mjs";

const [name, secondsText] = process.argv.slice(2);
const seconds = Number(secondsText);
const { about, open } = paths[name];

/** Steps for so long; microseconds a call of each. */
async function repeat({ step, calls, apart = () => 0 }, forSeconds) {
  const samples = [];
  const until = performance.now() + 1000 * forSeconds;
  while (performance.now() < until) {
    const began = 1000 * performance.now() - apart();
    await step();
    samples.push((1000 * performance.now() - apart() - began) / calls);
  }
  return samples.sort((a, b) => a - b);
}

try {
  const path = await open();
  await repeat(path, seconds / 3);
  const samples = await repeat(path, seconds);
  await path.close();
  const figures = { median_us: samples[samples.length >> 1], least_us: samples[0] };
  console.log(JSON.stringify({ name, about, ...figures, samples: samples.length }));
} catch (error) {
  console.log(JSON.stringify({ name, about, not_run: String(error?.message ?? error) }));
}
