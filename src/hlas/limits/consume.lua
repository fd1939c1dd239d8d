-- All the limits of one request: each has room and each is consumed, or none is.
-- KEYS: a key per limit. ARGV: 'consume' or 'peek', then 'count window slot' of each limit.
-- Times are microseconds. A state is a flat list: opened, at, times, at, times, ..., as `Window` in memory.py.
-- Returns the number of the limit that is hit the longest (0: none) and how long it is hit.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function figures(n)
  local count, window, slot = string.match(ARGV[n + 1], '(%d+) (%d+) (%d+)')
  return tonumber(count), tonumber(window), tonumber(slot)
end

-- The server's clock stepped back: nothing that is counted may lie in the future.
local function shift(state)
  local ahead = state[#state - 1] - now
  if ahead <= 0 then return false end
  state[1] = state[1] - ahead
  for i = 2, #state, 2 do state[i] = state[i] - ahead end
  return true
end

-- What is still in the window, and how much that is.
local function live(state, horizon)
  local kept, used = { state[1] }, 0
  for i = 2, #state, 2 do
    if state[i] > horizon then
      kept[#kept + 1], kept[#kept + 2] = state[i], state[i + 1]
      used = used + state[i + 1]
    end
  end
  return kept, used
end

local function save(key, state, window)
  redis.call('SET', key, cmsgpack.pack(state), 'PX', window / 1000 + 1000)
end

local states, hit, longest = {}, 0, 0
for n, key in ipairs(KEYS) do
  local count, window = figures(n)
  local packed = redis.call('GET', key)
  if packed then
    local state = cmsgpack.unpack(packed)
    -- Kept even if the request is refused, or each refusal would start the wait anew.
    if shift(state) then save(key, state, window) end
    local kept, used = live(state, now - window)
    local surplus = used - count
    if surplus >= 0 then
      local i = 2
      while surplus >= kept[i + 1] do
        surplus, i = surplus - kept[i + 1], i + 2
      end
      local wait = kept[i] + window - now
      if wait > longest then hit, longest = n, wait end
    end
    states[n] = kept
  end
end

if hit == 0 and ARGV[1] == 'consume' then
  for n, key in ipairs(KEYS) do
    local state, _, window, slot = states[n] or { 0 }, figures(n)
    if #state > 1 and now - state[1] < slot then
      state[#state - 1], state[#state] = now, state[#state] + 1
    else
      state[1], state[#state + 1], state[#state + 2] = now, now, 1
    end
    save(key, state, window)
  end
end
return { hit, longest }
