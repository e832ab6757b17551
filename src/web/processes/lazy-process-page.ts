import { lazy } from "../app/lazy.tsx";

/** The page of a process. Its terminal emulator is most of the console's code, and lists do not need it. */
export const ProcessPage = lazy(async () => (await import("./process-page.tsx")).ProcessPage);
