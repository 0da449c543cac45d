/** What calls accept, read from the service's own description: a new algorithm or layout appears by itself. */

/** @typedef {{algorithms: string[], algorithm: string, modes: string[], layouts: string[]}} Choices */

/** @type {Promise<Choices> | null} */
let asked = null;

/** @param {import("./api.js").Api} api @returns {Promise<Choices>} */
export function readChoices(api) {
  asked ??= api.get("openapi.json").then((document) => {
    const run = document.components.schemas.NewRun.properties;
    const parameters = document.paths["/v1/import"].post.parameters;
    const layout = parameters.find((one) => one.name === "format").schema;
    return {
      algorithms: values(run.algorithm, document),
      algorithm: run.algorithm.default,
      modes: values(run.activate, document),
      layouts: values(layout, document),
    };
  });
  asked.catch(() => {
    asked = null; // asked again next time
  });
  return asked;
}

function values(schema, document) {
  const found = schema.$ref ? document.components.schemas[schema.$ref.split("/").pop()] : schema;
  return (
    found.enum ??
    (found.const === undefined ? (found.anyOf ?? []).flatMap((one) => values(one, document)) : [found.const])
  );
}
