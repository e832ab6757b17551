import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

/** A component whose code is loaded when it is first rendered, or earlier by `preload`. */
export interface LazyComponent<P> {
  (props: P): preact.JSX.Element;
  preload(): void;
}

/** Returns a component that loads its code on first use, so that other pages do not wait for it. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): LazyComponent<P> {
  let loading: Promise<ComponentType<P>> | null = null;
  let loaded: ComponentType<P> | null = null;
  const loadOnce = () => {
    loading ??= load().then((component) => {
      loaded = component;
      return component;
    });
    // The next use tries again.
    loading.catch(() => {
      loading = null;
    });
    return loading;
  };
  const Lazy = (props: P) => {
    const [Component, setComponent] = useState(() => loaded);
    const [hasFailed, setFailed] = useState(false);
    useEffect(() => {
      if (Component) return;
      loadOnce().then(
        (component) => setComponent(() => component),
        () => setFailed(true),
      );
    }, []);
    if (hasFailed) {
      return (
        <p role="alert" class="notice">
          The page cannot be loaded. Reload it when the server runs again.
        </p>
      );
    }
    return Component ? <Component {...props} /> : <p class="notice">Loading…</p>;
  };
  return Object.assign(Lazy, { preload: () => void loadOnce().catch(() => undefined) });
}
