/**
 * Makes `instanceof` hold between copies of a class: one program may load two versions of `procwire-client`. Subclasses
 * keep their own check.
 */
export function shareInstances(shared: abstract new (...args: never[]) => object, name: string): void {
  const brand = Symbol.for(name);
  Object.defineProperty(shared.prototype, brand, { value: true });
  Object.defineProperty(shared, Symbol.hasInstance, {
    value(this: unknown, value: unknown): boolean {
      if (this !== shared) return Function.prototype[Symbol.hasInstance].call(this as () => void, value);
      return typeof value === "object" && value !== null && brand in value;
    },
  });
}
