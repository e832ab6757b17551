import path from "node:path";

/** Where jobs are kept: `$PROCWIRE_HOME/jobs`, else `.procwire/jobs` in the working directory. */
export function jobsHome(env: NodeJS.ProcessEnv, cwd: string): string {
  return env.PROCWIRE_HOME ? path.resolve(env.PROCWIRE_HOME, "jobs") : path.resolve(cwd, ".procwire", "jobs");
}
