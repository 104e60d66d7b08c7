/** Things that a test has opened are closed behind it. Loads nothing of the library, which tests may mock. */
const closers: (() => Promise<unknown>)[] = [];

/** Has something closed after the test. */
export function closeAfter(close: () => Promise<unknown>): void {
  closers.push(close);
}

/** Closes all of it. */
export async function closeOpened(): Promise<void> {
  await Promise.all(closers.splice(0).map((close) => close()));
}
