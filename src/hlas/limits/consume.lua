-- Checks the limits of many requests in order. Each request consumes all of its limits or none.
-- KEYS: one for each limit of each request. ARGV[1]: JSON, for each request
--   [1 to consume or 0 to peek, [count, window, slot], ... one for each of its limits]
-- Times are in microseconds. A state is a packed list: start of the last slot, then time, count, ...
-- Returns 'hit wait hit wait ...': for each request the number of the limit with the longest wait
-- (0: none is hit) and that wait.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- After the server's clock has stepped back, move all times back so that none is in the future.
local function shift(state)
  local ahead = state[#state - 1] - now
  if ahead <= 0 then return false end
  state[1] = state[1] - ahead
  for i = 2, #state, 2 do state[i] = state[i] - ahead end
  return true
end

-- The keys of this call with the usage within their window. Written once, at the end.
local loaded = {}

local function load(key, window)
  local entry = loaded[key]
  if entry then return entry end
  entry = { state = { 0 }, used = 0, window = window, changed = false }
  local packed = redis.call('GET', key)
  if packed then
    local state = cmsgpack.unpack(packed)
    -- Saved even if the request is refused; otherwise each refusal would restart the wait.
    entry.changed = shift(state)
    entry.state[1] = state[1]
    for i = 2, #state, 2 do
      if state[i] > now - window then
        entry.state[#entry.state + 1], entry.state[#entry.state + 2] = state[i], state[i + 1]
        entry.used = entry.used + state[i + 1]
      end
    end
  end
  loaded[key] = entry
  return entry
end

-- The time until one more request is admitted; 0: now.
local function wait_for(entry, count)
  local surplus, i = entry.used - count, 2
  if surplus < 0 then return 0 end
  while surplus >= entry.state[i + 1] do
    surplus, i = surplus - entry.state[i + 1], i + 2
  end
  return entry.state[i] + entry.window - now
end

local function add(entry, slot)
  local state = entry.state
  if #state > 1 and now - state[1] < slot then
    state[#state - 1], state[#state] = now, state[#state] + 1
  else
    state[1], state[#state + 1], state[#state + 2] = now, now, 1
  end
  entry.used, entry.changed = entry.used + 1, true
end

local answers, first = {}, 0
for _, request in ipairs(cjson.decode(ARGV[1])) do
  local hit, longest, limits = 0, 0, #request - 1
  for n = 1, limits do
    local limit = request[n + 1]
    local wait = wait_for(load(KEYS[first + n], limit[2]), limit[1])
    if wait > longest then hit, longest = n, wait end
  end
  if hit == 0 and request[1] == 1 then
    for n = 1, limits do add(loaded[KEYS[first + n]], request[n + 1][3]) end
  end
  answers[#answers + 1] = string.format('%d %d', hit, longest)
  first = first + limits
end

for key, entry in pairs(loaded) do
  if entry.changed then
    redis.call('SET', key, cmsgpack.pack(entry.state), 'PX', entry.window / 1000 + 1000)
  end
end
return table.concat(answers, ' ')
