/** A promise of the language that is settled from outside. */
export class NativePromise<T> {
  readonly promise: Promise<T>;
  resolve!: (value: unknown) => void;
  reject!: (error: unknown) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve as (value: unknown) => void;
      this.reject = reject;
    });
  }
}
